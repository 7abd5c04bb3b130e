// The picture: SVG elements for boxes and edges, and how one moves about in it.

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./walk.js").Walk} Walk */

let pictures = 0; // on this page: markers are known by the names that they have there
const SVG = "http://www.w3.org/2000/svg";
const CHARACTER = 7.25; // width of one of 12 px
const LINE = 20;
const HEAD = 26;
const LONGEST = 40; // characters of a row

/** @typedef {import("./layout.js").Layout} Layout */
/** @typedef {import("./layout.js").Sized} Sized */
/** @typedef {import("./walk.js").Part} Part */
/** @typedef {import("./walk.js").Box} Box */

/** An element of SVG. @param {string} name @param {Record<string, string | number>} attributes @param {string} [text] */
export function svg(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  if (text !== undefined) element.textContent = text;
  return element;
}

/** @param {string} text @param {number} [most] */
export function short(text, most = LONGEST) {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}

/** Names of equal layers. @param {string[]} names */
export function several(names) {
  return names.length > 2 ? `${names[0]} and ${names.length - 1} more` : names.join(", ");
}

/** The texts of a box. @param {Model} model @param {Box} box */
function texts(model, box) {
  const names = model.names.get(box.id) ?? [];
  const name = several(names);
  const rows = box.rows.map((n) => short(model.label(n)));
  return { name: short(name), type: short(model.type(box.id) || "no type", 30), cost: short(model.brief(box.id), 28), rows };
}

/** Sizes of boxes, from their texts. @param {Model} model @param {Part} part @returns {Sized[]} */
export function sized(model, part) {
  return part.boxes.map((box) => {
    const { name, type, cost, rows } = texts(model, box);
    const longest = Math.max(name.length, type.length + (cost ? cost.length + 3 : 0), ...rows.map((row) => row.length + 2));
    const top = HEAD + (name ? LINE : 0);
    const height = top + LINE * (rows.length + (box.more ? 1 : 0)) + 6;
    return { id: box.id, width: Math.ceil(longest * CHARACTER) + 26, height, ports: rows.map((_, i) => top + LINE * (i + 0.5)) };
  });
}

/** A picture in which one pans, zooms and walks. */
export class Picture {
  /**
   * @param {HTMLElement} place
   * @param {Model} model
   * @param {{select: (c: number) => void, toggle: (c: number) => void, whole: (c: number) => void}} events
   */
  constructor(place, model, events) {
    this.model = model;
    this.events = events;
    this.svg = svg("svg", { class: "picture", role: "group", "aria-label": "e-graph" });
    const defs = svg("defs", {});
    this.number = ++pictures;
    for (const kind of ["plain", "chosen"]) {
      const marker = svg("marker", { id: `arrow-${kind}-${this.number}`, class: `arrow ${kind}`, viewBox: "0 0 8 8", refX: 7, refY: 4,
        markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto-start-reverse" });
      marker.append(svg("path", { d: "M0 0.5L8 4L0 7.5z" }));
      defs.append(marker);
    }
    this.world = svg("g", {});
    this.edges = svg("g", { class: "edges" });
    this.boxes = svg("g", { class: "boxes" });
    this.world.append(this.edges, this.boxes);
    this.svg.append(defs, this.world);
    place.append(this.svg);
    /** @type {Map<number, {x: number, y: number, width: number, height: number}>} */
    this.at = new Map();
    /** @type {import("./walk.js").Edge[]} */
    this.links = [];
    this.view = { x: 20, y: 20, scale: 1 };
    this.size = { width: 1, height: 1 };
    this.moved();
    this.listen();
  }

  listen() {
    /** Where each finger is, or the pressed mouse. @type {Map<number, {x: number, y: number}>} */
    const down = new Map();
    let dragged = false;
    /** The middle of all that are down, and how far two of them are apart. */
    const grip = () => {
      const [a, b = a] = down.values();
      return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2, apart: Math.hypot(a.x - b.x, a.y - b.y) };
    };
    this.svg.addEventListener("pointerdown", (event) => {
      if (!(event instanceof PointerEvent) || event.button !== 0 || down.size > 1) return;
      if (!down.size) dragged = false;
      down.set(event.pointerId, { x: event.clientX, y: event.clientY });
    });
    this.svg.addEventListener("pointermove", (event) => {
      if (!(event instanceof PointerEvent)) return;
      const from = down.get(event.pointerId);
      if (!event.buttons) down.delete(event.pointerId); // it was let go elsewhere
      if (!from || !event.buttons) return;
      if (!dragged && Math.hypot(event.clientX - from.x, event.clientY - from.y) < 4) return;
      if (!dragged) for (const pointer of down.keys()) this.svg.setPointerCapture(pointer);
      dragged = true;
      const before = grip();
      down.set(event.pointerId, { x: event.clientX, y: event.clientY });
      const after = grip();
      this.pan(after.x - before.x, after.y - before.y);
      if (before.apart > 0 && after.apart > 0) {
        const place = this.svg.getBoundingClientRect();
        this.zoom(after.apart / before.apart, after.x - place.left, after.y - place.top);
      }
    });
    for (const name of ["pointerup", "pointercancel"]) {
      this.svg.addEventListener(name, (event) => event instanceof PointerEvent && down.delete(event.pointerId));
    }
    this.svg.addEventListener("click", (event) => dragged && event.stopPropagation(), true);
    this.svg.addEventListener(
      "wheel",
      (event) => {
        if (!(event instanceof WheelEvent)) return;
        event.preventDefault();
        const place = this.svg.getBoundingClientRect();
        this.zoom(Math.exp(-event.deltaY * 0.0015), event.clientX - place.left, event.clientY - place.top);
      },
      { passive: false },
    );
  }

  /** @param {number} dx @param {number} dy */
  pan(dx, dy) {
    this.view.x += dx;
    this.view.y += dy;
    this.moved();
  }

  /** @param {number} factor @param {number} [x] @param {number} [y] the point that stays */
  zoom(factor, x = this.svg.clientWidth / 2, y = this.svg.clientHeight / 2) {
    const scale = Math.min(4, Math.max(0.05, this.view.scale * factor));
    this.view.x = x - ((x - this.view.x) * scale) / this.view.scale;
    this.view.y = y - ((y - this.view.y) * scale) / this.view.scale;
    this.view.scale = scale;
    this.moved();
  }

  /** All that is open in the window, not larger than life. */
  fit() {
    const { clientWidth, clientHeight } = this.svg;
    const scale = Math.min((clientWidth - 40) / this.size.width, (clientHeight - 40) / this.size.height, 1.1);
    this.view.scale = Math.max(0.05, scale);
    this.view.x = Math.max(20, (clientWidth - this.size.width * this.view.scale) / 2);
    this.view.y = Math.max(20, (clientHeight - this.size.height * this.view.scale) / 2);
    this.moved();
  }

  /** The same, but large enough to be read, with a class and what is below it in sight. @param {number} c */
  open(c) {
    this.fit();
    const box = this.at.get(c);
    if (this.view.scale >= 0.7 || !box) return;
    const { clientWidth, clientHeight } = this.svg;
    const [scale, tall] = [0.8, this.size.height * 0.8];
    const y = tall < clientHeight - 40 ? (clientHeight - tall) / 2 : Math.max(clientHeight - 20 - tall, Math.min(20, clientHeight * 0.2 - box.y * scale));
    this.view = { x: clientWidth * 0.04 - box.x * scale, y, scale };
    this.moved();
  }

  /** @param {number} c */
  center(c) {
    const box = this.at.get(c);
    if (!box) return;
    this.view.x = this.svg.clientWidth * 0.4 - (box.x + box.width / 2) * this.view.scale;
    this.view.y = this.svg.clientHeight / 2 - (box.y + box.height / 2) * this.view.scale;
    this.moved();
  }

  moved() {
    const { x, y, scale } = this.view;
    this.world.setAttribute("transform", `translate(${x} ${y}) scale(${scale})`);
  }

  /** @param {Layout} layout @param {Part} part @param {Walk} walk @param {number} [still] the class that stays in place */
  show(layout, part, walk, still) {
    const before = still === undefined ? undefined : this.at.get(still);
    const focused = document.activeElement instanceof SVGElement ? document.activeElement.dataset.eclass : undefined;
    this.at = new Map(layout.boxes.map((box) => [box.id, box]));
    this.size = { width: layout.width, height: layout.height };
    const after = still === undefined ? undefined : this.at.get(still);
    if (before && after) this.pan((before.x - after.x) * this.view.scale, (before.y - after.y) * this.view.scale);
    const rows = new Map(part.boxes.map((box) => [box.id, box.rows]));
    const { chosen } = this.model;
    const drawn = layout.edges.map((edge) => {
      const n = rows.get(edge.from)?.[edge.row] ?? -1;
      const kind = chosen.has(n) ? "chosen" : "plain";
      const path = svg("path", { class: `edge ${kind}`, d: edge.path, "marker-end": `url(#arrow-${kind}-${this.number})` });
      path.dataset.from = String(edge.from);
      path.dataset.to = String(edge.to);
      return { path, kind };
    });
    drawn.sort((a, b) => Number(a.kind === "chosen") - Number(b.kind === "chosen"));
    this.links = [...part.edges].filter(({ from, to }) => from !== to).sort((a, b) => Number(b.firm) - Number(a.firm));
    this.edges.replaceChildren(...drawn.map((one) => one.path));
    this.boxes.replaceChildren(...part.boxes.map((box) => this.box(box, walk)));
    if (focused !== undefined) this.focus(Number(focused));
  }

  /** @param {number} c */
  focus(c) {
    const box = this.boxes.querySelector(`[data-eclass="${c}"]`);
    if (box instanceof SVGElement) box.focus({ preventScroll: true });
  }

  /** @param {number | null} c */
  mark(c) {
    for (const box of this.boxes.children) box.classList.toggle("selected", box instanceof SVGElement && box.dataset.eclass === String(c));
    for (const edge of this.edges.children) {
      const own = edge instanceof SVGElement && (edge.dataset.from === String(c) || edge.dataset.to === String(c));
      edge.classList.toggle("near", own);
    }
  }

  /** @param {Box} box @param {Walk} walk */
  box(box, walk) {
    const { model, events } = this;
    const at = this.at.get(box.id) ?? { x: 0, y: 0, width: 0, height: 0 };
    const { name, type, cost, rows } = texts(model, box);
    const chosen = model.members[box.id].some((n) => model.chosen.has(n));
    const kind = `box${chosen ? " chosen" : ""}${box.id === model.record.result ? " result" : ""}`;
    const open = box.hidden ? "closed" : "open";
    const said = `${name} ${type}, ${rows.length + box.more} e-nodes, ${open}${cost ? `, ${cost}` : ""}`;
    const group = svg("g", { class: kind, transform: `translate(${at.x} ${at.y})`, tabindex: 0, role: "button", "aria-label": said });
    group.dataset.eclass = String(box.id);
    group.append(svg("rect", { class: "frame", width: at.width, height: at.height, rx: 6 }));
    if (name) group.append(svg("text", { class: "name", x: 10, y: 19 }, name));
    const top = HEAD + (name ? LINE : 0);
    group.append(svg("text", { class: "type", x: 10, y: top - 8 }, type));
    if (cost) group.append(svg("text", { class: "cost", x: at.width - 10, y: top - 8, "text-anchor": "end" }, cost));
    box.rows.forEach((n, i) => {
      const y = top + i * LINE;
      const now = walk.iteration > 0 && model.first[n] === walk.iteration && model.record.made !== null;
      const best = model.chosen.has(n);
      const row = svg("g", { class: `row${best ? " chosen" : ""}${now ? " new" : ""}${model.subsumed.has(n) ? " subsumed" : ""}` });
      row.append(svg("rect", { x: 3, y: y + 1, width: at.width - 6, height: LINE - 2, rx: 3 }));
      row.append(svg("text", { x: 10, y: y + 14 }, `${best ? "●" : now ? "+" : " "}`));
      row.append(svg("text", { x: 24, y: y + 14 }, rows[i]));
      row.append(svg("title", {}, model.label(n) + (model.children(n).includes(box.id) ? " (reads its own e-class)" : "")));
      group.append(row);
    });
    if (box.more) {
      const more = svg("text", { class: "more", x: 24, y: top + rows.length * LINE + 14 }, `${box.more} more e-node${box.more > 1 ? "s" : ""} …`);
      more.addEventListener("click", (event) => {
        event.stopPropagation();
        events.whole(box.id);
      });
      group.append(more);
    }
    if (box.hidden) {
      const badge = svg("g", { class: "badge", transform: `translate(${at.width} ${at.height / 2})` });
      const label = `+${box.hidden}`;
      badge.append(svg("rect", { x: -4, y: -9, width: 10 + label.length * CHARACTER, height: 18, rx: 9 }));
      badge.append(svg("text", { x: 1, y: 4 }, label), svg("title", {}, `${box.hidden} e-classes below are not open`));
      group.append(badge);
    }
    group.addEventListener("click", () => {
      events.toggle(box.id);
      events.select(box.id);
    });
    group.addEventListener("keydown", (event) => this.key(event, box.id));
    return group;
  }

  /** @param {Event} event @param {number} c */
  key(event, c) {
    if (!(event instanceof KeyboardEvent)) return;
    if (event.key === "Enter" || event.key === " ") {
      this.events.toggle(c);
      this.events.select(c);
    } else if (event.key.startsWith("Arrow")) {
      const next = this.next(c, event.key);
      if (next !== undefined) {
        this.focus(next);
        this.events.select(next);
      }
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** To the right what a class reads, to the left what reads it, the chosen first; else the nearest box in a direction.
   * @param {number} c @param {string} key */
  next(c, key) {
    const from = this.at.get(c);
    if (!from) return undefined;
    const joined = key === "ArrowRight" ? this.links.find((link) => link.from === c) : key === "ArrowLeft" && this.links.find((link) => link.to === c);
    if (joined) return joined.from === c ? joined.to : joined.from;
    const level = key === "ArrowUp" || key === "ArrowDown";
    const sign = key === "ArrowRight" || key === "ArrowDown" ? 1 : -1;
    let found;
    let least = Infinity;
    for (const [d, box] of this.at) {
      const dx = box.x - from.x;
      const dy = box.y + box.height / 2 - from.y - from.height / 2;
      const [along, aside] = level ? [dy * sign, Math.abs(dx)] : [dx * sign, Math.abs(dy)];
      if (d !== c && along > 1 && along + 3 * aside < least) [found, least] = [d, along + 3 * aside];
    }
    return found;
  }
}
