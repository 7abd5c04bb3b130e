// The start of a notebook's widget (anywidget): the record and the worker's text are traits.
import { viewerIn } from "./app.js";

/** @param {{model: {get: (name: string) => any}, el: HTMLElement}} given */
function render({ model, el }) {
  el.style.height = model.get("height");
  const viewer = viewerIn(el, JSON.parse(model.get("record")), model.get("worker"));
  return () => viewer?.close();
}

export default { render };
