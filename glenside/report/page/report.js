// A document as a page: its sections, and the pages that rows of its tables lead to, each made when it is opened.

import { element } from "./panel.js";
import { Viewer } from "./app.js";
import { sectionsOf } from "./blocks.js";

/** @typedef {{title: string, lead: string, sections: {title: string, blocks: import("./blocks.js").Block[]}[]}} Part */
/** @typedef {Part & {pages: Part[], cells: number[][]}} DocumentRecord */

/** The page of one document. */
export class Report {
  /** @param {HTMLElement} place @param {DocumentRecord} record @param {any} egraph its record, or one of nothing @param {string} worker */
  constructor(place, record, egraph, worker) {
    this.record = record;
    this.egraph = egraph;
    this.worker = worker;
    /** @type {Viewer | null} */
    this.viewer = null;
    this.root = element("div", "glenside-report");
    place.replaceChildren(this.root);
    this.top = this.made(record, "");
    this.from = 0; // where the reader was in it
    addEventListener("hashchange", () => this.show());
    addEventListener("afterprint", () => this.show());
    document.addEventListener("keydown", (event) => this.key(event));
    this.show();
  }

  /** The number of the page that is open; -1 is the first one. */
  get at() {
    const number = /^#(\d+)$/.exec(location.hash)?.[1];
    return number !== undefined && Number(number) <= this.record.pages.length ? Number(number) - 1 : -1;
  }

  /** @type {import("./blocks.js").Context} */
  get context() {
    return {
      cells: this.record.cells,
      go: (page) => (location.hash = `#${page + 1}`),
      egraph: (place, start) => {
        this.viewer?.close();
        this.viewer = new Viewer(place, { ...this.egraph, result: start }, this.worker);
        Object.assign(globalThis, { viewer: this.viewer });
      },
    };
  }

  /** @param {Part} part @param {string} kind */
  made(part, kind) {
    const head = element("header", "", element("h1", "", part.title), element("p", "lead", part.lead));
    return element("article", kind, head, ...sectionsOf(part.sections, this.context));
  }

  show() {
    const { at, record } = this;
    const whole = this.root.firstElementChild === this.top;
    if (whole) this.from = scrollY;
    this.viewer?.close();
    this.viewer = null;
    document.title = at < 0 ? record.title : `${record.pages[at].title}: ${record.title}`;
    if (at < 0) {
      this.root.replaceChildren(this.top, ...(record.pages.length ? [this.printing()] : []));
      scrollTo(0, this.from);
      return;
    }
    this.root.replaceChildren(this.way(at), this.made(record.pages[at], "page"), this.way(at));
    scrollTo(0, 0);
  }

  /** The links of a page. @param {number} at */
  way(at) {
    const { pages, title } = this.record;
    const link = (/** @type {number} */ to, /** @type {string} */ text) => {
      const made = element("a", "", text);
      made.setAttribute("href", to < 0 ? "#" : `#${to + 1}`);
      return made;
    };
    const links = [link(-1, `↑ ${title}`), element("span", "quiet", `${at + 1} of ${pages.length}`)];
    if (at > 0) links.push(link(at - 1, `← ${pages[at - 1].title}`));
    if (at + 1 < pages.length) links.push(link(at + 1, `${pages[at + 1].title} →`));
    return element("nav", "way", ...links);
  }

  printing() {
    const every = element("button", "", `Print with all ${this.record.pages.length} pages`);
    every.addEventListener("click", () => this.printed());
    const keys = "Keys: ← and → go from page to page, Esc comes back, / filters; in a plot or a tile, arrows go from number to number.";
    return element("footer", "foot", every, element("span", "quiet", keys));
  }

  /** Everything at once, for paper. */
  printed() {
    this.root.append(...this.record.pages.map((page) => this.made(page, "page")));
    print();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
    const inside = event.target instanceof Element && event.target.closest(".egraph");
    if (event.ctrlKey || event.metaKey || event.altKey || inside) return;
    if (event.key === "Escape" && this.at >= 0) location.hash = "#";
    else if (typing) return;
    else if (event.key === "/") {
      event.preventDefault();
      /** @type {HTMLElement | null} */
      const filter = this.root.querySelector(".filter input");
      filter?.focus();
    } else if ((event.key === "ArrowRight" || event.key === "ArrowLeft") && this.record.pages.length) {
      const next = this.at + (event.key === "ArrowRight" ? 1 : -1);
      if (next >= -1 && next < this.record.pages.length) location.hash = next < 0 ? "#" : `#${next + 1}`;
    }
  }
}
