// The end of the worker's script, after dagre and `layout.js`; where it runs in a page, nothing listens.
import { arrange } from "./layout.js";

/** @type {any} */
const scope = globalThis;
scope.arrange = arrange;
if (typeof document === "undefined") {
  scope.addEventListener("message", (/** @type {MessageEvent} */ { data }) => {
    scope.postMessage({ number: data.number, layout: arrange(data.job, scope.dagre) });
  });
}
