// Requests to the server of this page.

import { load, store } from "./storage.js";

const KEY = "api-key";

const UNREACHABLE = "The server cannot be reached; check your connection.";

const KEY_REQUIRED = "This server requires an API key.";

export class ApiError extends Error {
  constructor(status, message, retryAfter) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter; // seconds, or 0
  }
}

let key = load("sessionStorage", KEY);

// Keeps the key of the next requests, also if the browser blocks its storage.
export function storeKey(value) {
  key = value;
  store("sessionStorage", KEY, value);
}

export const fetchModels = () => send("api/v1/models", { method: "GET" });

export const post = (operation, body, signal) =>
  send(`api/v1/${operation}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });

const DOCUMENTS = "api/v1/documents";

export const sendDocument = (form, signal) => send(DOCUMENTS, { method: "POST", body: form, signal });

export const documentState = (id, signal) => send(`${DOCUMENTS}/${id}`, { method: "GET", signal });

export const documentContent = (id, signal) =>
  send(`${DOCUMENTS}/${id}/content`, { method: "GET", signal }, "blob");

export const deleteDocument = (id) => send(`${DOCUMENTS}/${id}`, { method: "DELETE" }, "text");

// Repeats a request as long as the server is overloaded or cannot be reached. `onWait` receives
// each error.
export async function sendWithRetry(request, onWait, signal) {
  for (;;) {
    try {
      return await request();
    } catch (error) {
      if (!error.retryAfter) throw error;
      onWait(error);
      await pause(1000 * error.retryAfter, signal);
    }
  }
}

export const pause = (milliseconds, signal) =>
  new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", stop);
      resolve();
    }, milliseconds);
    signal.addEventListener("abort", stop);
  });

// `read` is the method that reads a successful response.
async function send(path, request, read = "json") {
  const headers = { ...request.headers, ...(key && { Authorization: `Bearer ${key}` }) };
  let response;
  try {
    response = await fetch(path, { ...request, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, UNREACHABLE, 3);
  }
  const content = await response[response.ok ? read : "json"]().catch((error) => {
    if (error.name === "AbortError") throw error;
    return null;
  });
  if (response.ok && content !== null) return content;
  const retryAfter = Number(response.headers.get("Retry-After")) || 0;
  throw new ApiError(response.status, sentence(content?.error, response.status), retryAfter);
}

function sentence({ code, message } = {}, status) {
  if (!message) return `The server returned an error (status ${status}).`;
  if (code === "unauthorized") return KEY_REQUIRED; // the message is for programs
  return `${message[0].toUpperCase()}${message.slice(1)}.`;
}
