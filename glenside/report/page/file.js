// The start of a file of its own: the record and the worker's text are data blocks of the page.
import { viewerIn } from "./app.js";

const place = document.getElementById("egraph");
const record = JSON.parse(document.getElementById("record")?.textContent ?? "null");
const worker = document.getElementById("worker")?.textContent ?? "";
const still = document.getElementById("still");
if (place) {
  const viewer = viewerIn(place, record, worker);
  Object.assign(globalThis, { viewer });
  if (!viewer) still?.remove();
  viewer?.ready.then(() => still?.remove());
}
