// The whole viewer in one element: controls, picture, side panel, and the sentence on what is not shown.

import { Model } from "./model.js";
import { Walk, leftOut } from "./walk.js";
import { Picture, sized, short } from "./draw.js";
import { Layouts } from "./layouts.js";
import { element, showPanel } from "./panel.js";

const FOUND = 30; // results of a search that are listed
const KEYS = "Keys: → what it reads, ← what reads it, Enter opens and closes, / searches, m opens more, 0 fits.";
const GROUPED = "An earlier iteration shows the e-nodes that were made by then, in the e-classes of the end.";

/** @param {string} label @param {HTMLElement} control */
function labelled(label, control) {
  return element("label", "", element("span", "", label), control);
}

/** @param {string} text @param {string} hint @param {() => void} action */
function button(text, hint, action) {
  const made = element("button", "", text);
  made.title = hint;
  made.setAttribute("aria-label", hint);
  made.addEventListener("click", action);
  return made;
}

/** Options of a list. @param {[string, string][]} choices @param {string} name */
function list(choices, name) {
  const made = document.createElement("select");
  made.name = name;
  for (const [value, text] of choices) made.append(new Option(text, value));
  return made;
}

/** The viewer of one e-graph. */
export class Viewer {
  /** @param {HTMLElement} place @param {import("./model.js").EgraphRecord} record @param {string} worker its text */
  constructor(place, record, worker) {
    this.model = new Model(record);
    this.walk = new Walk(this.model);
    /** @type {number | null} */
    this.selected = null;
    this.note = element("p", "note");
    this.way = element("p", "note");
    this.grouped = element("p", "note grouped");
    this.layouts = new Layouts(worker, (sentence) => (this.note.textContent = sentence));
    this.root = element("div", "glenside-egraph");
    this.root.tabIndex = -1;
    this.root.dataset.lmSuppressShortcuts = "true"; // JupyterLab would take m and 0 for commands of its own
    this.status = element("p", "status");
    this.status.setAttribute("role", "status");
    this.results = element("ul", "results");
    this.panel = element("aside", "panel");
    this.canvas = element("div", "canvas");
    this.root.append(this.bar(), this.canvas, this.panel, this.foot());
    place.replaceChildren(this.root);
    this.picture = new Picture(this.canvas, this.model, {
      select: (c) => this.select(c),
      toggle: (c) => this.change(() => this.walk.toggle(c), c),
      whole: (c) => this.change(() => this.walk.whole.add(c), c),
    });
    this.root.addEventListener("keydown", (event) => this.key(event));
    this.select(record.result);
    /** Resolves when the picture is there. */
    this.ready = this.draw().then(() => this.picture.open(record.result));
  }

  bar() {
    const { record } = this.model;
    this.search = document.createElement("input");
    this.search.type = "search";
    this.search.placeholder = "operator, rule, layer, type";
    for (const when of ["input", "focus"]) this.search.addEventListener(when, () => this.find());
    const mode = list([["all", "all e-nodes"], ["chosen", "only what was chosen"], ["changed", "only what the iteration made"]], "mode");
    mode.addEventListener("change", () => {
      const value = mode.value;
      this.change(() => (this.walk.mode = value === "chosen" || value === "changed" ? value : "all"), undefined, true);
    });
    const bar = element("header", "bar", element("h1", "", short(record.title || "e-graph", 70)));
    if (record.roots.length > 1) {
      const start = list(record.roots.map(([name, c]) => [String(c), short(name || "result", 40)]), "start");
      start.value = String(record.result);
      start.addEventListener("change", () => this.beginAt(Number(start.value)));
      bar.append(labelled("Start at", start));
    }
    bar.append(labelled("Show", mode));
    this.slider = document.createElement("input");
    Object.assign(this.slider, { type: "range", name: "iteration", min: "0", max: String(record.iterations), step: "1" });
    this.slider.value = String(record.iterations);
    this.when = element("output", "");
    this.slider.addEventListener("input", () => this.moveTo(Number(this.slider?.value)));
    if (record.made) {
      const slide = labelled("Iteration", element("span", "slider", this.slider, this.when));
      slide.title = GROUPED;
      bar.append(slide);
    } else bar.append(element("span", "quiet", "No trace was kept, so iterations and rules are not known."));
    bar.append(element("div", "search", labelled("Search", this.search), this.results));
    this.describe();
    return bar;
  }

  foot() {
    const more = button("Open more", "Open the next e-classes everywhere (m)", () => this.widen());
    const zoom = element("span", "zoom",
      button("+", "Larger (+)", () => this.picture.zoom(1.25)),
      button("−", "Smaller (-)", () => this.picture.zoom(0.8)),
      button("Fit", "All that is open (0)", () => this.picture.fit()));
    const legend = element("p", "legend",
      element("span", "key chosen", "● chosen"), element("span", "key new", "+ made in this iteration"),
      element("span", "key subsumed", "taken away"), element("span", "key hidden", "+3: e-classes not open; click to open or close"));
    return element("footer", "foot", this.status, more, zoom, legend, this.grouped, this.way, this.note, element("p", "keys quiet", KEYS));
  }

  /** Change what is open, and draw it. @param {() => void} change @param {number} [still] @param {boolean} [fit] */
  change(change, still, fit = false) {
    change();
    this.ready = this.draw(still).then(() => {
      if (fit) this.picture.open(this.walk.part().boxes[0]?.id ?? -1);
    });
    return this.ready;
  }

  /** @param {number} [still] */
  async draw(still) {
    const part = this.walk.part();
    this.status.textContent = leftOut(this.model, this.walk, part);
    const layout = await this.layouts.of({ boxes: sized(this.model, part), edges: part.edges });
    if (!layout) return; // a later one is on its way
    this.picture.show(layout, part, this.walk, still);
    this.picture.mark(this.selected);
  }

  /** @param {number} c */
  select(c) {
    this.selected = c;
    showPanel(this.panel, this.model, c, (d) => this.go(d));
    this.panel.scrollTop = 0;
    this.picture.mark(c);
  }

  /** Show a class wherever it is. @param {number} c */
  go(c) {
    this.select(c);
    let way = "";
    this.ready = this.change(() => (way = this.walk.reveal(c))).then(() => this.picture.center(c));
    this.way.textContent = way;
  }

  /** Show what a search found, and with it the picture that its list is on. @param {number} c */
  goFound(c) {
    this.results.replaceChildren();
    this.go(c);
    this.ready = this.ready.then(() => this.picture.focus(c));
  }

  /** @param {number} c */
  beginAt(c) {
    this.select(c);
    this.change(() => this.walk.begin(c)).then(() => this.picture.open(c));
  }

  widen() {
    this.change(() => this.walk.widen(), this.selected ?? undefined);
  }

  /** @param {number} iteration */
  moveTo(iteration) {
    if (this.slider) this.slider.value = String(iteration);
    this.describe(iteration);
    this.change(() => (this.walk.iteration = iteration), this.selected ?? undefined, this.walk.mode === "changed");
  }

  describe(iteration = this.walk.iteration) {
    const all = this.model.record.iterations;
    if (this.when) this.when.textContent = iteration === 0 ? "0: the program" : iteration === all ? `${all}: all of it` : `${iteration} of ${all}`;
    this.grouped.textContent = this.model.record.made && iteration < all ? GROUPED : "";
  }

  find() {
    const found = this.model.search(this.search?.value ?? "");
    const items = found.slice(0, FOUND).map(({ eclass, why }) => {
      const item = element("button", "", short(why, 60), element("span", "quiet", ` ${short(this.model.type(eclass), 36)}`));
      item.addEventListener("click", () => this.goFound(eclass));
      return element("li", "", item);
    });
    const words = this.search?.value.trim();
    if (words && !found.length) items.push(element("li", "quiet", "nothing has that in an operator, rule, layer, name or type"));
    if (found.length > FOUND) items.push(element("li", "quiet", `and ${(found.length - FOUND).toLocaleString("en")} more e-classes`));
    this.results.replaceChildren(...items);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.key === "Escape") {
      if (this.search) this.search.value = "";
      this.find();
      this.picture.focus(this.selected ?? this.model.record.result);
      return;
    }
    const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
    if (event.target === this.search && event.key === "Enter") {
      const [first] = this.model.search(this.search?.value ?? "");
      if (first) this.goFound(first.eclass);
    }
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    /** @type {Record<string, () => void>} */
    const actions = {
      "/": () => this.search?.focus(),
      "+": () => this.picture.zoom(1.25),
      "-": () => this.picture.zoom(0.8),
      0: () => this.picture.fit(),
      m: () => this.widen(),
    };
    if (actions[event.key]) {
      event.preventDefault();
      actions[event.key]();
    }
  }

  /** End the worker. */
  close() {
    this.layouts.close();
  }
}

/** The viewer of an e-graph in a place, or a sentence and null where it holds nothing.
 * @param {HTMLElement} place @param {import("./model.js").EgraphRecord} record @param {string} worker its text */
export function viewerIn(place, record, worker) {
  if (record.nodes.class.length) return new Viewer(place, record, worker);
  place.replaceChildren(element("p", "glenside-egraph nothing", `${record.title || "This e-graph"}: no e-nodes, so there is nothing to walk through.`));
  return null;
}
