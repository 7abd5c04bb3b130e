// The start of a report's file: its records and the worker's text are data blocks of the page.
import { Report } from "./report.js";

const place = document.getElementById("report");
const read = (/** @type {string} */ id) => document.getElementById(id)?.textContent ?? "";
if (place) Object.assign(globalThis, { report: new Report(place, JSON.parse(read("record")), JSON.parse(read("egraph")), read("worker")) });
