/** A list of which only the rows in sight exist. It moves with the page, and holds more rows than a page can be high. */

const MAX_HEIGHT = 8_000_000;
const SPARE = 6;

export class VirtualList {
  /** `draw(index)` returns the element of a row; `height()` how high each is. */
  constructor(box, draw, height) {
    Object.assign(this, { box, draw, height, count: 0 });
    this.shown = new Map();
    addEventListener("scroll", () => this.update(), { passive: true });
    addEventListener("resize", () => this.reset());
  }

  /** Shows so many rows, all drawn anew. */
  reset(count = this.count) {
    this.count = count;
    this.rowHeight = this.height();
    this.full = count * this.rowHeight;
    this.box.style.setProperty("height", `${Math.min(this.full, MAX_HEIGHT)}px`);
    this.shown.clear();
    this.box.replaceChildren();
    this.update();
  }

  /** Shows more rows than before; those in sight stay where they are. */
  grow(count) {
    const { top, offset, view } = this.place();
    this.count = count;
    this.full = count * this.rowHeight;
    this.box.style.setProperty("height", `${Math.min(this.full, MAX_HEIGHT)}px`);
    if (top > 0 && this.full > MAX_HEIGHT) {
      const boxTop = this.box.getBoundingClientRect().top + scrollY;
      scrollTo(0, boxTop + (offset * (MAX_HEIGHT - view)) / (this.full - view));
    }
    this.update();
  }

  /** Returns how far the rows are moved up, and by how much faster they move than the page. */
  place() {
    const view = innerHeight;
    const top = Math.max(0, -this.box.getBoundingClientRect().top);
    if (this.full <= MAX_HEIGHT) return { top, offset: top, view };
    return { top, offset: Math.min(top * ((this.full - view) / (MAX_HEIGHT - view)), this.full - view), view };
  }

  update() {
    if (!this.box.isConnected || !this.box.offsetParent && this.box.getClientRects().length === 0) return;
    const { top, offset, view } = this.place();
    const first = Math.max(0, Math.floor(offset / this.rowHeight) - SPARE);
    const last = Math.min(this.count, Math.ceil((offset + view) / this.rowHeight) + SPARE);
    for (const [index, element] of this.shown) {
      if (index < first || index >= last) {
        element.remove();
        this.shown.delete(index);
      }
    }
    let before = null;
    for (let index = last - 1; index >= first; index--) {
      let element = this.shown.get(index);
      if (!element) {
        element = this.draw(index);
        this.shown.set(index, element);
        this.box.insertBefore(element, before);
      }
      element.style.setProperty("transform", `translateY(${Math.round(top + index * this.rowHeight - offset)}px)`);
      before = element;
    }
  }

  /** Draws a row anew, if it is in sight. */
  redraw(index) {
    const old = this.shown.get(index);
    if (!old) return;
    const element = this.draw(index);
    element.style.setProperty("transform", old.style.getPropertyValue("transform"));
    const link = old.contains(document.activeElement);
    old.replaceWith(element);
    this.shown.set(index, element);
    if (link) element.querySelector("a")?.focus({ preventScroll: true });
  }

  redrawAll() {
    for (const index of [...this.shown.keys()]) this.redraw(index);
  }

  /** Moves the page so that a row can be seen below `covered` pixels that something sticks over. */
  reveal(index, covered) {
    const boxTop = this.box.getBoundingClientRect().top + scrollY;
    const scale = this.full <= MAX_HEIGHT ? 1 : (MAX_HEIGHT - innerHeight) / (this.full - innerHeight);
    const top = boxTop + index * this.rowHeight * scale;
    const far = 3 * this.rowHeight;
    if (top < scrollY + covered - far || top > scrollY + innerHeight + far) scrollTo(0, top - innerHeight / 2);
    else if (top < scrollY + covered) scrollTo(0, top - covered);
    else if (top + this.rowHeight > scrollY + innerHeight) scrollTo(0, top + this.rowHeight - innerHeight + 8);
    this.update();
  }
}
