// The start of a notebook's widget (anywidget): the record and the worker's text are traits.
import { viewerIn } from "./app.js";

const LEVELS = 6; // of elements between the cell's outputs and the widget

/** The output before the widget's, if it is the still picture. @param {HTMLElement} el */
function stillBefore(el) {
  /** @type {Element | null} */
  let at = el;
  for (let level = 0; at && level < LEVELS; level += 1, at = at.parentElement) {
    const before = at.previousElementSibling;
    if (before instanceof HTMLElement && before.querySelector('svg.still, .jp-RenderedSVG, img[src^="data:image/svg"]')) return before;
  }
  return null;
}

/** @param {{model: {get: (name: string) => any}, el: HTMLElement}} given */
function render({ model, el }) {
  el.style.height = model.get("height");
  const viewer = viewerIn(el, JSON.parse(model.get("record")), model.get("worker"));
  const still = stillBefore(el);
  const shown = still?.style.display ?? "";
  if (still) still.style.display = "none";
  return () => {
    if (still) still.style.display = shown;
    viewer?.close();
  };
}

export default { render };
