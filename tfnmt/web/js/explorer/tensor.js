// A tensor: values in row-major order, with a shape.

export class Tensor {
  constructor(data, shape) {
    Object.assign(this, { data, shape });
  }

  // Returns the part at the given first indices, which shares the values.
  at(...indices) {
    const shape = this.shape.slice(indices.length);
    const size = product(shape);
    const start = indices.reduce((sum, index, axis) => sum + index * product(this.shape.slice(axis + 1)), 0);
    return new Tensor(this.data.subarray(start, start + size), shape);
  }

  // Returns the parts along the first axis: tensors, or numbers of a vector.
  parts() {
    if (this.shape.length === 1) return Array.from(this.data);
    return Array.from({ length: this.shape[0] }, (_, index) => this.at(index));
  }

  // Returns a matrix as an array of rows, each an array of numbers.
  rows() {
    return this.parts().map((row) => row.parts());
  }
}

// Returns the mean of tensors of the same shape.
export function mean(tensors) {
  const [{ data, shape }] = tensors;
  const sums = Float32Array.from(data, (_, i) => tensors.reduce((sum, each) => sum + each.data[i], 0));
  return new Tensor(sums.map((sum) => sum / tensors.length), shape);
}

// Returns the sum of two tensors of the same shape.
export const add = (one, other) =>
  new Tensor(one.data.map((value, i) => value + other.data[i]), one.shape);

// Returns the largest difference between two sequences of numbers, where both have values.
export const largestDifference = (one, other) =>
  one.reduce((most, value, i) => Math.max(most, Math.abs(value - (other[i] ?? value))), 0);

const product = (sizes) => sizes.reduce((total, size) => total * size, 1);
