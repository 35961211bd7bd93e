// Values in the storage of the browser, which may be full or disabled.

export function load(storage, key) {
  try {
    return JSON.parse(window[storage].getItem(key));
  } catch {
    return null;
  }
}

// Stores a value. Returns whether there was room for it.
export function store(storage, key, value) {
  try {
    window[storage].setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}
