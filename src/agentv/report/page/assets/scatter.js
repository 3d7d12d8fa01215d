// @ts-check
/** A plot of score against duration or cost. Dragging over dots filters the cases. */

/**
 * @import { Model } from "./model.js"
 * @import { Child } from "./dom.js"
 * @import { FilterBy } from "./plots.js"
 */

import { decorative, el, elWith, fill, switchButtons } from "./dom.js";
import { countText, durationText, moneyText } from "./format.js";
import { BORDERLINE, PASS, STATES } from "./states.js";

/** @typedef {{ x: number, y: number }} Point */

/** Space around the dots, in pixels. */
const EDGE = 6;
/** The axis is logarithmic if the largest value is this many times the smallest. */
const LOGARITHMIC_FROM = 20;
const MANY_CASES = 2000;
const SOME_CASES = 300;
/** Drags shorter than this are clicks, in pixels. */
const SHORTEST_DRAG = 4;

export class Scatter {
  /**
   * @param {Model} model
   * @param {FilterBy} filterBy
   * @param {AbortSignal} signal ends the plot: it no longer follows the color scheme
   */
  constructor(model, filterBy, signal) {
    this.model = model;
    this.filterBy = filterBy;
    this.signal = signal;
    const { durations, costs } = model.run.cases;
    this.measures = [];
    if (hasSeveralValues(durations)) this.measures.push("duration");
    if (hasSeveralValues(costs)) this.measures.push("cost");
    this.measure = this.measures[0];
    this.canvas = elWith("canvas", { role: "img", tabindex: "-1" });
    this.brush = elWith("div.brush", { hidden: true });
    this.field = el("div.scatter-field", this.canvas, this.brush);
    this.ticks = decorative("div.ticks");
    this.axis = new Axis(new Float64Array(0), 0);
    this.height = 0;
  }

  /** Whether any durations or costs are known to plot. */
  get hasMeasure() {
    return this.measures.length > 0;
  }

  /**
   * Return the title and the plot.
   * @returns {Child[]}
   */
  elements() {
    const { signal } = this;
    this.#listen();
    const resizes = new ResizeObserver(() => this.draw());
    resizes.observe(this.field);
    signal.addEventListener("abort", () => resizes.disconnect());
    const darkScheme = matchMedia("(prefers-color-scheme: dark)");
    darkScheme.addEventListener("change", () => this.draw(), { signal });
    const title = el("h2", "Score against ", this.#measureSwitch());
    return [title, el("div.scatter", this.field, this.ticks)];
  }

  #measureSwitch() {
    if (this.measures.length < 2) return this.measure;
    return switchButtons("across", this.measures, (measure) => {
      this.measure = measure;
      this.draw();
    });
  }

  // drawing

  draw() {
    const { width, height } = this.field.getBoundingClientRect();
    if (!width) return;
    const { cases } = this.model.run;
    const values = this.measure === "cost" ? cases.costs : cases.durations;
    this.axis = new Axis(values, width);
    this.height = height;
    const context = this.#clearCanvas(width, height);
    this.#drawGrid(context, width);
    const drawn = this.#drawDots(context, values);
    this.#describe(drawn);
  }

  /**
   * @param {number} width
   * @param {number} height
   */
  #clearCanvas(width, height) {
    const ratio = devicePixelRatio || 1;
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    const context = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    context.scale(ratio, ratio);
    return context;
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {number} width
   */
  #drawGrid(context, width) {
    context.strokeStyle = themeColor("--line");
    for (const score of [0, 0.5, 1]) {
      const y = Math.round(this.#y(score)) + 0.5;
      context.beginPath();
      context.moveTo(0, y);
      context.lineTo(width, y);
      context.stroke();
    }
  }

  /**
   * Draw a dot per case, and return how many were drawn.
   * @param {CanvasRenderingContext2D} context
   * @param {Float64Array} values
   */
  #drawDots(context, values) {
    const { scores, states } = this.model.run.cases;
    const { count } = this.model;
    const colors = STATES.map((state) => themeColor(`--mark-${state.key}`));
    const areMany = count > MANY_CASES;
    context.globalAlpha = areMany ? 0.35 : 0.75;
    let size = 3;
    if (areMany) size = 1.5;
    else if (count > SOME_CASES) size = 2;
    let drawn = 0;
    for (let row = 0; row < count; row++) {
      if (!(values[row] >= 0) || Number.isNaN(scores[row])) continue;
      const state = states[row];
      context.fillStyle = colors[state];
      context.strokeStyle = colors[state];
      const x = this.axis.x(values[row]);
      const y = this.#y(scores[row]);
      if (areMany) context.fillRect(x - size / 2, y - size / 2, size, size);
      else drawMark(context, state, x, y, size);
      drawn++;
    }
    return drawn;
  }

  /** @param {number} drawn */
  #describe(drawn) {
    const valueText = this.measure === "cost" ? moneyText : durationText;
    const low = valueText(this.axis.low);
    const high = valueText(this.axis.high);
    fill(this.ticks, el("span", low), el("span", high));
    const content = `${countText(drawn, "case")}, from ${low} to ${high}`;
    const hint = `filter with ${this.measure}> and score<`;
    this.canvas.setAttribute("aria-label", `score against ${this.measure}: ${content}; ${hint}`);
  }

  /** @param {number} score */
  #y(score) {
    return this.height - EDGE - score * (this.height - 2 * EDGE);
  }

  /** @param {number} y */
  #score(y) {
    return (this.height - EDGE - y) / (this.height - 2 * EDGE);
  }

  // filtering

  #listen() {
    const { field } = this;
    /** @type {Point | null} */
    let start = null;
    field.addEventListener("pointerdown", (event) => {
      start = this.#pointOf(event);
      field.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    field.addEventListener("pointermove", (event) => {
      if (start) this.#showBrush(start, this.#pointOf(event));
    });
    field.addEventListener("pointerup", (event) => {
      const from = start;
      start = null;
      this.brush.hidden = true;
      if (from) this.#filter(from, this.#pointOf(event));
    });
    field.addEventListener("pointercancel", () => {
      start = null;
      this.brush.hidden = true;
    });
  }

  /**
   * @param {PointerEvent} event
   * @returns {Point}
   */
  #pointOf(event) {
    const { left, top } = this.field.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  }

  /**
   * @param {Point} from
   * @param {Point} to
   */
  #showBrush(from, to) {
    this.brush.hidden = false;
    Object.assign(this.brush.style, {
      left: `${Math.min(from.x, to.x)}px`,
      top: `${Math.min(from.y, to.y)}px`,
      width: `${Math.abs(to.x - from.x)}px`,
      height: `${Math.abs(to.y - from.y)}px`,
    });
  }

  /**
   * @param {Point} from
   * @param {Point} to
   */
  #filter(from, to) {
    const width = Math.abs(to.x - from.x);
    const height = Math.abs(to.y - from.y);
    if (width < SHORTEST_DRAG || height < SHORTEST_DRAG) return;
    const lowest = Math.max(0, this.axis.value(Math.min(from.x, to.x)));
    const highest = this.axis.value(Math.max(from.x, to.x));
    const lowestScore = Math.max(0, this.#score(Math.max(from.y, to.y)));
    const highestScore = Math.min(1, this.#score(Math.min(from.y, to.y)));
    const terms = [
      `${this.measure}>=${fourDigits(lowest)}`,
      `${this.measure}<=${fourDigits(highest)}`,
      `score>=${lowestScore.toFixed(2)}`,
      `score<=${highestScore.toFixed(2)}`,
    ];
    this.filterBy(terms.join(" "));
  }
}

/** The horizontal axis: values <-> pixels. It is logarithmic if the values differ a lot. */
class Axis {
  /**
   * @param {Float64Array} values
   * @param {number} width
   */
  constructor(values, width) {
    this.low = Infinity;
    this.high = -Infinity;
    for (const value of values) {
      if (value < this.low) this.low = value;
      if (value > this.high) this.high = value;
    }
    this.room = width - 2 * EDGE;
    this.isLogarithmic = this.low > 0 && this.high / this.low > LOGARITHMIC_FROM;
    this.start = this.#scaled(this.low);
    this.range = this.#scaled(this.high) - this.start || 1;
  }

  /** @param {number} value */
  #scaled(value) {
    return this.isLogarithmic ? Math.log(value) : value;
  }

  /**
   * Return the position of a value in pixels.
   * @param {number} value
   */
  x(value) {
    return EDGE + ((this.#scaled(value) - this.start) / this.range) * this.room;
  }

  /**
   * Return the value at a position in pixels.
   * @param {number} x
   */
  value(x) {
    const scaled = this.start + ((x - EDGE) / this.room) * this.range;
    return this.isLogarithmic ? Math.exp(scaled) : scaled;
  }
}

/**
 * Draw a dot whose shape shows its state: passes are round, failures are crosses.
 * @param {CanvasRenderingContext2D} context
 * @param {number} state
 * @param {number} x
 * @param {number} y
 * @param {number} size
 */
function drawMark(context, state, x, y, size) {
  if (state === PASS) {
    context.beginPath();
    context.arc(x, y, size, 0, 2 * Math.PI);
    context.fill();
  } else if (state === BORDERLINE) {
    context.fillRect(x - size, y - size * 0.6, size * 2, size * 1.2);
  } else {
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x - size, y - size);
    context.lineTo(x + size, y + size);
    context.moveTo(x + size, y - size);
    context.lineTo(x - size, y + size);
    context.stroke();
  }
}

/**
 * Return whether values differ, ignoring unknown values and zeros.
 * @param {Float64Array} values
 */
function hasSeveralValues(values) {
  const first = values.find((value) => value >= 0);
  return values.some((value) => value > 0 && value !== first);
}

/** @param {string} name */
function themeColor(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name);
}

/** @param {number} value */
function fourDigits(value) {
  return String(Number(value.toPrecision(4)));
}
