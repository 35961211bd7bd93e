// Requests to the server that this page came from.

const KEY = "api-key";

const UNREACHABLE = "The server cannot be reached.";

export class ApiError extends Error {
  constructor(status, message, retryAfter) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter; // seconds, or 0
  }
}

export const keep = (key) => sessionStorage.setItem(KEY, key);

export const models = () => send("api/v1/models", { method: "GET" });

export const ask = (what, body, signal) =>
  send(`api/v1/${what}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });

async function send(path, request) {
  const key = sessionStorage.getItem(KEY);
  const headers = { ...request.headers, ...(key && { Authorization: `Bearer ${key}` }) };
  let answer;
  try {
    answer = await fetch(path, { ...request, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, UNREACHABLE, 3);
  }
  const content = await answer.json().catch((error) => {
    if (error.name === "AbortError") throw error;
    return null;
  });
  if (answer.ok && content) return content;
  const retryAfter = Number(answer.headers.get("Retry-After")) || 0;
  throw new ApiError(answer.status, sentence(content?.error?.message, answer.status), retryAfter);
}

function sentence(message, status) {
  if (!message) return `The server answered with an error (${status}).`;
  return `${message[0].toUpperCase()}${message.slice(1)}.`;
}
