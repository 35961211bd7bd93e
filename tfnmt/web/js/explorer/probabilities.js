// Distributions over the vocabulary, as log probabilities.

// Log probabilities below this belong to tokens that no translation may contain.
export const EXCLUDED = -1e30;

// Returns log softmax(log probabilities / temperature). A temperature of 1 changes nothing.
export function temper(logProbs, temperature) {
  if (temperature === 1) return logProbs;
  const scaled = logProbs.map((value) => value / temperature);
  const highest = max(scaled);
  let sum = 0;
  for (const value of scaled) sum += Math.exp(value - highest);
  const normalizer = highest + Math.log(sum);
  return scaled.map((value) => value - normalizer);
}

// Returns the indices of the k largest values, largest first. Of equal values, the first comes first.
export function topK(values, k) {
  const top = [];
  for (let i = 0; i < values.length; i += 1) {
    if (top.length === k && values[i] <= values[top[k - 1]]) continue;
    let place = Math.min(top.length, k - 1);
    while (place && values[top[place - 1]] < values[i]) {
      top[place] = top[place - 1];
      place -= 1;
    }
    top[place] = i;
  }
  return top;
}

// Returns the rank of an index: 1 if no value is larger.
export const rank = (values, index) =>
  values.reduce((count, value) => count + (value > values[index] ? 1 : 0), 1);

// Returns the entropy of a distribution in bits.
export function entropy(logProbs) {
  let sum = 0;
  for (const value of logProbs) if (value > EXCLUDED) sum -= Math.exp(value) * value;
  return sum / Math.LN2;
}

export function max(values) {
  let highest = -Infinity;
  for (const value of values) if (value > highest) highest = value;
  return highest;
}
