// Reads protocol buffers: as much of their format as a SentencePiece model needs.

const VARINT = 0;
const BYTES = 2;
const FLOAT = 5;

// Returns the values of each field of a message by number: integers, floats, or bytes.
export function readFields(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const fields = new Map();
  let position = 0;
  const varint = () => {
    let value = 0;
    for (let factor = 1; ; factor *= 128) {
      const byte = view.getUint8(position++);
      value += (byte & 127) * factor;
      if (byte < 128) return value;
    }
  };
  const read = {
    [VARINT]: varint,
    [BYTES]: () => {
      const length = varint();
      position += length;
      return bytes.subarray(position - length, position);
    },
    [FLOAT]: () => view.getFloat32((position += 4) - 4, true),
  };
  while (position < bytes.length) {
    const tag = varint();
    const number = Math.floor(tag / 8);
    if (!read[tag % 8]) throw new Error(`protocol buffer: field ${number} has the unknown type ${tag % 8}`);
    if (!fields.has(number)) fields.set(number, []);
    fields.get(number).push(read[tag % 8]());
  }
  return fields;
}

export const readString = (bytes) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
