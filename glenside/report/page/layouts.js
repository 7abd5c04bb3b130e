// Layouts on demand: in a worker made of a text, so that nothing freezes; in the page itself where there are no workers.

/** @typedef {import("./layout.js").Job} Job */
/** @typedef {import("./layout.js").Layout} Layout */

/** Computes the layout of the last job that it was given; the others are dropped. */
export class Layouts {
  /** @param {string} text a script that defines `dagre` and `arrange` @param {(sentence: string) => void} say */
  constructor(text, say) {
    this.text = text;
    this.say = say;
    this.last = 0;
    /** @type {Map<number, {job: Job, done: (layout: Layout | null) => void}>} */
    this.waiting = new Map();
    /** @type {Worker | null} */
    this.worker = null;
    try {
      const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
      this.worker = new Worker(address);
      this.worker.addEventListener("message", ({ data }) => this.take(data.number, data.layout));
      this.worker.addEventListener("error", (event) => {
        event.preventDefault();
        this.without();
      });
    } catch {
      this.without();
    }
  }

  /** What workers would have done is done here. */
  without() {
    this.worker?.terminate();
    this.worker = null;
    this.say("This browser runs no worker here, so the page stands still while a picture is laid out.");
    if (!("arrange" in globalThis)) {
      const script = document.createElement("script");
      script.textContent = this.text;
      document.head.append(script);
    }
    for (const [number, { job }] of this.waiting) this.here(number, job);
  }

  /** @param {number} number @param {Job} job */
  here(number, job) {
    const { arrange, dagre } = /** @type {any} */ (globalThis);
    this.take(number, arrange(job, dagre));
  }

  /** @param {number} number @param {Layout} layout */
  take(number, layout) {
    const asked = this.waiting.get(number);
    this.waiting.delete(number);
    asked?.done(number === this.last ? layout : null);
  }

  /** The layout; null where another was asked for since. @param {Job} job @returns {Promise<Layout | null>} */
  of(job) {
    const number = ++this.last;
    return new Promise((done) => {
      this.waiting.set(number, { job, done });
      if (this.worker) this.worker.postMessage({ number, job });
      else this.here(number, job);
    });
  }

  close() {
    this.worker?.terminate();
  }
}
