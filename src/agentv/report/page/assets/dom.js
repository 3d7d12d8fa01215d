/** Builds elements. Text reaches the page as text nodes only: nothing here, or anywhere else, parses markup. */

const SVG = "http://www.w3.org/2000/svg";

/** Returns an element. `props` are attributes; `class`, `on` (listeners), `style` and `dataset` are known. */
export function el(tag, props, ...children) {
  return build(document.createElement(tag), props, children);
}

/** Returns an element of a drawing. */
export function svg(tag, props, ...children) {
  return build(document.createElementNS(SVG, tag), props, children);
}

function build(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (name === "style") {
      for (const [property, setting] of Object.entries(value)) element.style.setProperty(property, setting);
    } else if (name === "value") {
      element.value = value;
    } else {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else if (child !== null && child !== undefined && child !== false) element.append(child);
  }
}

/** Puts these children into an element, in the place of what it has. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Lets the browser draw and listen before the next step of long work. */
export function breathe() {
  return new Promise((resolve) => setTimeout(resolve));
}

/** Copies text; says whether that worked. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = el("textarea", { class: "hidden-text", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}
