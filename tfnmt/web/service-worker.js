// Keeps the files of this folder, so that the page works offline after the first visit.
//
// A new export is loaded completely while the pages of the old one are open, and replaces it after
// they are closed. A file is kept only if it has the checksum of the export, because a server may have
// only a part of a new export yet. So a page never mixes two exports.

/* global CHECKSUMS, VERSION */

importScripts("files.js"); // changes with each export, which makes the browser install it

const { scope } = self.registration;
const PREFIX = `${scope}#`; // other pages of the same server have caches too
const LARGE = /^(model|litert)\//; // kept when the page loads them: one of two builds is never loaded
const RECORD = new URL("checksums", scope).href; // the checksums of the files of a cache

self.addEventListener("install", (event) => event.waitUntil(install()));
self.addEventListener("activate", (event) => event.waitUntil(activate()));
self.addEventListener("fetch", (event) => {
  const name = nameOf(event.request.url);
  if (event.request.method === "GET" && name in CHECKSUMS) event.respondWith(answer(event, name));
});

const urlOf = (name) => new URL(name, scope).href;

// Returns the name of the file at an address.
function nameOf(url) {
  const { origin, pathname } = new URL(url);
  const root = new URL(scope);
  if (origin !== root.origin || !pathname.startsWith(root.pathname)) return null;
  return pathname.slice(root.pathname.length) || "index.html";
}

const openCache = () => caches.open(PREFIX + VERSION);

async function otherCaches() {
  return (await caches.keys()).filter((key) => key.startsWith(PREFIX) && key !== PREFIX + VERSION);
}

async function install() {
  const cache = await openCache();
  const [previous] = await Promise.all((await otherCaches()).map((key) => caches.open(key)));
  const checksums = await (await previous?.match(RECORD))?.json();
  const names = Object.keys(CHECKSUMS).filter((name) => !LARGE.test(name));
  for (const { url } of (await previous?.keys()) ?? []) if (LARGE.test(nameOf(url))) names.push(nameOf(url));
  for (const name of new Set(names)) {
    if (!(name in CHECKSUMS)) continue;
    const same = checksums?.[name] === CHECKSUMS[name] && (await previous.match(urlOf(name)));
    await keep(cache, name, same || (await fetch(urlOf(name), { cache: "no-cache" })));
  }
  await cache.put(RECORD, Response.json(CHECKSUMS));
}

async function activate() {
  await Promise.all((await otherCaches()).map((key) => caches.delete(key)));
  await self.clients.claim();
}

async function answer(event, name) {
  const cache = await openCache();
  const kept = await cache.match(urlOf(name));
  if (kept) return kept;
  const response = await fetch(urlOf(name), { cache: "no-cache" });
  // The page gets the file while it arrives. It works without a kept file, for example if the disk is full.
  event.waitUntil(keep(cache, name, response.clone()).catch(() => {}));
  return response;
}

async function keep(cache, name, response) {
  if (!response.ok) throw new Error(`${name}: the server answered ${response.status}`);
  if (!(await isOfExport(name, response.clone()))) throw new Error(`${name}: of another export`);
  await cache.put(urlOf(name), response);
}

// Returns whether a file has its checksum. One that the server decompressed has none.
async function isOfExport(name, response) {
  if (name.endsWith(".gz") && response.headers.has("content-encoding")) return true;
  const digest = await crypto.subtle.digest("SHA-256", await response.arrayBuffer());
  const hex = Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex === CHECKSUMS[name];
}
