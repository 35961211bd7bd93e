// Runs the graphs of a LiteRT file with LiteRT.js, without threads.
//
// This uses the bindings of the WebAssembly module itself. The package's own wrapper cannot be loaded
// in a worker without a bundler, and reads no booleans.

const FLOAT32 = 1;
const INT32 = 2;
const BOOL = 6;
const ARRAYS = { [FLOAT32]: Float32Array, [INT32]: Int32Array, [BOOL]: Uint8Array };
const TYPES = new Map([
  [Float32Array, FLOAT32],
  [Int32Array, INT32],
]);

export class Engine {
  // Loads graphs.
  //
  // factory: the function that creates the WebAssembly module.
  // wasm: the bytes of the module.
  // graphs: the bytes of the LiteRT file.
  // shapes: the shapes of its graphs, as exported.
  static async load({ factory, wasm, graphs, shapes }) {
    const engine = new Engine();
    engine.shapes = shapes;
    engine.module = await factory({ wasmBinary: wasm, print: () => {}, printErr: () => {} });
    engine.environment = engine.module.LiteRtEnvironment.create(null);
    const address = engine.module._malloc(graphs.byteLength); // never freed: the model reads it
    engine.module.HEAPU8.set(graphs, address);
    engine.model = engine.module.loadModel(engine.environment, address, graphs.byteLength);
    engine.compiled = await engine.module.compileModel(engine.environment, engine.model, {
      accelerator: "wasm",
      environment: {},
      cpuOptions: { numThreads: 1 },
      gpuOptions: {},
      webNNOptions: {},
    });
    engine.signatures = engine.readSignatures();
    return engine;
  }

  readSignatures() {
    const signatures = {};
    for (let index = 0; index < this.model.getNumSignatures(); index += 1) {
      const signature = this.model.getSignature(index);
      signatures[signature.key()] = {
        index,
        inputs: listOf(signature.inputNames()),
        outputs: listOf(signature.outputNames()),
      };
      signature.delete();
    }
    return signatures;
  }

  // Runs a graph. Inputs by name are typed arrays, or integers or lists of them. Their elements are
  // in the order of the tensor; its shape follows from their number. Returns { data, shape } by name.
  run(name, inputs) {
    const signature = this.signatures[name];
    if (!signature) throw new Error(`no graph ${name}; there are ${Object.keys(this.signatures).join(", ")}`);
    const shapes = this.shapes[name];
    const arrays = signature.inputs.map((input) => arrayOf(input, inputs[input]));
    const sizes = {}; // by input, of its axis without a constant size
    signature.inputs.forEach((input, i) => {
      sizes[input] = arrays[i].length / product(shapes.inputs[input].filter((size) => size !== input));
    });
    const shapeOf = (shape) => shape.map((size) => sizes[size] ?? size);
    const tensors = signature.inputs.map((input, i) => this.tensorOf(arrays[i], shapeOf(shapes.inputs[input])));
    try {
      const outputs = this.compiled.run(signature.index, tensors).map((tensor) => this.read(tensor));
      return Object.fromEntries(
        signature.outputs.map((output, i) => {
          const shape = shapeOf(shapes.outputs[output]);
          return [output, { data: slice(outputs[i], shape), shape }];
        }),
      );
    } finally {
      for (const tensor of tensors) tensor.delete();
    }
  }

  tensorOf(data, shape) {
    const { LiteRtLayout, LiteRtRankedTensorType, LiteRtTensorBuffer, VectorInt32 } = this.module;
    const sizes = new VectorInt32();
    for (const size of shape) sizes.push_back(size);
    const layout = LiteRtLayout.create(sizes);
    const type = LiteRtRankedTensorType.create({ value: TYPES.get(data.constructor) }, layout);
    const memory = this.module.LiteRtTensorBufferType.HOST_MEMORY;
    const tensor = LiteRtTensorBuffer.createManaged(this.environment, memory, type, data.byteLength);
    for (const temporary of [sizes, layout, type]) temporary.delete();
    const address = tensor.lock(this.module.LiteRtTensorBufferLockMode.WRITE);
    this.module.HEAPU8.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), address);
    tensor.unlock();
    return tensor;
  }

  // Copies a tensor out of the memory of the module and deletes it.
  read(tensor) {
    const type = tensor.tensorType();
    const layout = type.layout();
    const shape = listOf(layout.dimensions());
    const address = tensor.lock(this.module.LiteRtTensorBufferLockMode.READ);
    const bytes = this.module.HEAPU8.slice(address, address + tensor.packedSize());
    const data = new ARRAYS[type.elementType().value](bytes.buffer);
    tensor.unlock();
    for (const temporary of [layout, type, tensor]) temporary.delete();
    return { data, shape };
  }
}

const product = (numbers) => numbers.reduce((result, number) => result * number, 1);

function arrayOf(name, value) {
  if (value === undefined) throw new Error(`input ${name} is missing`);
  return ArrayBuffer.isView(value) ? value : Int32Array.from([value].flat());
}

// Returns the elements at the beginning of each axis of an array, as an array of this shape.
function slice({ data, shape: padded }, shape) {
  const row = shape.at(-1);
  const result = new data.constructor(product(shape));
  const index = shape.map(() => 0);
  for (let to = 0; to < result.length; to += row) {
    const from = index.reduce((sum, i, axis) => sum * padded[axis] + i, 0);
    result.set(data.subarray(from, from + row), to);
    for (let axis = shape.length - 2; axis >= 0 && (index[axis] += 1) === shape[axis]; axis -= 1) index[axis] = 0;
  }
  return result;
}

function listOf(vector) {
  const list = Array.from({ length: vector.size() }, (_, i) => vector.get(i));
  vector.delete();
  return list;
}
