// @ts-check
/**
 * A virtual list: only the visible rows are in the document. It scrolls with the page, and can have
 * more rows than fit into the maximum height of a page.
 */

/** Browsers limit the height of elements. In a taller list, rows scroll faster than the page. */
const MAX_HEIGHT = 8_000_000;
/** Rows that are drawn above and below the visible ones. */
const SPARE_ROWS = 6;
const SPACE_BELOW = 8;

export class VirtualList {
  /**
   * @param {HTMLElement} box
   * @param {(index: number) => HTMLElement} drawRow
   * @param {() => number} readRowHeight
   */
  constructor(box, drawRow, readRowHeight) {
    this.box = box;
    this.drawRow = drawRow;
    this.readRowHeight = readRowHeight;
    this.count = 0;
    this.rowHeight = 0;
    /** The total height of all rows. */
    this.fullHeight = 0;
    /** @type {Map<number, HTMLElement>} */
    this.shown = new Map();
    addEventListener("scroll", () => this.update(), { passive: true });
    addEventListener("resize", () => this.reset());
  }

  /**
   * Set the number of rows and redraw all of them.
   * @param {number} [count]
   */
  reset(count = this.count) {
    this.rowHeight = this.readRowHeight();
    this.#resize(count);
    this.shown.clear();
    this.box.replaceChildren();
    this.update();
  }

  /**
   * Append rows. The visible rows keep their position.
   * @param {number} count
   */
  grow(count) {
    const { top, offset } = this.#place();
    this.#resize(count);
    if (top > 0 && this.fullHeight > MAX_HEIGHT) {
      scrollTo(0, this.#boxTop() + offset / this.#speed());
    }
    this.update();
  }

  /** @param {number} count */
  #resize(count) {
    this.count = count;
    this.fullHeight = count * this.rowHeight;
    this.box.style.setProperty("height", `${Math.min(this.fullHeight, MAX_HEIGHT)}px`);
  }

  /** Return where the list begins on the page. */
  #boxTop() {
    return this.box.getBoundingClientRect().top + scrollY;
  }

  /** Return the ratio of the scroll speed of the rows to that of the page. */
  #speed() {
    if (this.fullHeight <= MAX_HEIGHT) return 1;
    return (this.fullHeight - innerHeight) / (MAX_HEIGHT - innerHeight);
  }

  /** Return how far the page is scrolled into the list, in pixels of the page and of the rows. */
  #place() {
    const top = Math.max(0, -this.box.getBoundingClientRect().top);
    if (this.fullHeight <= MAX_HEIGHT) return { top, offset: top };
    return { top, offset: Math.min(top * this.#speed(), this.fullHeight - innerHeight) };
  }

  /** Draw rows that have become visible, and remove rows that are no longer visible. */
  update() {
    const isVisible = this.box.offsetParent || this.box.getClientRects().length > 0;
    if (!this.box.isConnected || !isVisible) return;
    const { top, offset } = this.#place();
    const first = Math.max(0, Math.floor(offset / this.rowHeight) - SPARE_ROWS);
    const end = Math.ceil((offset + innerHeight) / this.rowHeight) + SPARE_ROWS;
    const last = Math.min(this.count, end);
    this.#removeOutside(first, last);
    /** @type {HTMLElement | null} */
    let next = null;
    for (let index = last - 1; index >= first; index--) {
      /** @type {HTMLElement} */
      const element = this.shown.get(index) ?? this.#insert(index, next);
      const y = Math.round(top + index * this.rowHeight - offset);
      element.style.setProperty("transform", `translateY(${y}px)`);
      next = element;
    }
  }

  /**
   * @param {number} first
   * @param {number} last
   */
  #removeOutside(first, last) {
    for (const [index, element] of this.shown) {
      if (index >= first && index < last) continue;
      element.remove();
      this.shown.delete(index);
    }
  }

  /**
   * @param {number} index
   * @param {HTMLElement | null} next
   */
  #insert(index, next) {
    const element = this.drawRow(index);
    this.shown.set(index, element);
    this.box.insertBefore(element, next);
    return element;
  }

  /**
   * Redraw a row if it is visible.
   * @param {number} index
   */
  redraw(index) {
    const old = this.shown.get(index);
    if (!old) return;
    const element = this.drawRow(index);
    element.style.setProperty("transform", old.style.getPropertyValue("transform"));
    const hadFocus = old.contains(document.activeElement);
    old.replaceWith(element);
    this.shown.set(index, element);
    if (hadFocus) element.querySelector("a")?.focus({ preventScroll: true });
  }

  /** Redraw all visible rows. */
  redrawAll() {
    for (const index of [...this.shown.keys()]) this.redraw(index);
  }

  /**
   * Scroll the page so that a row is visible.
   * @param {number} index
   * @param {number} covered pixels at the top of the window that are covered
   */
  reveal(index, covered) {
    const top = this.#boxTop() + (index * this.rowHeight) / this.#speed();
    const bottom = top + this.rowHeight;
    const far = 3 * this.rowHeight;
    const isFarAway = top < scrollY + covered - far || top > scrollY + innerHeight + far;
    if (isFarAway) scrollTo(0, top - innerHeight / 2);
    else if (top < scrollY + covered) scrollTo(0, top - covered);
    else if (bottom > scrollY + innerHeight) scrollTo(0, bottom - innerHeight + SPACE_BELOW);
    this.update();
  }
}
