// The start of a notebook's widget (anywidget): the record and the worker's text are traits.
import { Viewer } from "./app.js";

/** @param {{model: {get: (name: string) => any}, el: HTMLElement}} given */
function render({ model, el }) {
  el.style.height = model.get("height");
  const viewer = new Viewer(el, JSON.parse(model.get("record")), model.get("worker"));
  return () => viewer.close();
}

export default { render };
