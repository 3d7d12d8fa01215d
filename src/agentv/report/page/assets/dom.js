// @ts-check
/**
 * Builds elements. All text is inserted as text nodes: no code of the pages parses markup.
 */

/** @typedef {string | number | Node | false | null | undefined | Child[]} Child */

/**
 * Attributes of an element. `on` holds listeners by event, `style` holds CSS properties. Attributes
 * that are null, undefined or false are not set; those that are true are set without a value.
 * @typedef {{
 *   on?: Record<string, (event: any) => void>,
 *   style?: Record<string, string>,
 *   [attribute: string]: any,
 * }} Props
 */

const SVG = "http://www.w3.org/2000/svg";

/**
 * Return an element.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Props | null} [props]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function el(tag, props, ...children) {
  const element = document.createElement(tag);
  build(element, props ?? {}, children);
  return element;
}

/**
 * Return an SVG element.
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Props | null} [props]
 * @param {...Child} children
 * @returns {SVGElementTagNameMap[Tag]}
 */
export function svg(tag, props, ...children) {
  const element = document.createElementNS(SVG, tag);
  build(element, props ?? {}, children);
  return element;
}

/**
 * @param {HTMLElement | SVGElement} element
 * @param {Props} props
 * @param {Child[]} children
 */
function build(element, props, children) {
  const { on = {}, style = {}, value, ...attributes } = props;
  for (const [name, setting] of Object.entries(attributes)) {
    if (setting === null || setting === undefined || setting === false) continue;
    element.setAttribute(name, setting === true ? "" : String(setting));
  }
  for (const [event, listener] of Object.entries(on)) {
    element.addEventListener(event, listener);
  }
  for (const [property, setting] of Object.entries(style)) {
    element.style.setProperty(property, setting);
  }
  if (value !== undefined && value !== null) {
    /** @type {HTMLInputElement} */ (element).value = value;
  }
  append(element, children);
}

/**
 * @param {Element} element
 * @param {Child[]} children
 */
function append(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else if (child instanceof Node) element.append(child);
    else if (child !== null && child !== undefined && child !== false)
      element.append(String(child));
  }
}

/**
 * Replace the children of an element, and return the element.
 * @template {Element} Parent
 * @param {Parent} element
 * @param {...Child} children
 * @returns {Parent}
 */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/**
 * Return a button.
 * @param {Props} props
 * @param {(event: MouseEvent) => void} onClick
 * @param {...Child} children
 */
export function button(props, onClick, ...children) {
  return el("button", { type: "button", ...props, on: { click: onClick } }, ...children);
}

/**
 * Return a group of buttons, exactly one of which is pressed: initially the first.
 * @param {string} label
 * @param {string[]} names
 * @param {(name: string) => void} choose
 */
export function switchButtons(label, names, choose) {
  const buttons = names.map((name, at) => {
    const props = { "aria-pressed": String(at === 0) };
    return button(
      props,
      (event) => press(/** @type {Element} */ (event.currentTarget), name),
      name,
    );
  });
  /**
   * @param {Element} pressed
   * @param {string} name
   */
  function press(pressed, name) {
    for (const each of buttons) {
      each.setAttribute("aria-pressed", String(each === pressed));
    }
    choose(name);
  }
  return el("span", { class: "switch", role: "group", "aria-label": label }, buttons);
}

/**
 * Return text that screen readers skip, such as an icon with an adjacent label.
 * @param {...Child} children
 */
export function decorative(...children) {
  return el("span", { "aria-hidden": "true" }, ...children);
}

/**
 * Return text for screen readers only.
 * @param {...Child} children
 */
export function srOnly(...children) {
  return el("span", { class: "sr" }, ...children);
}

/** Let the browser draw and handle events between the steps of a long computation. */
export function breathe() {
  return new Promise((resolve) => setTimeout(resolve));
}

/**
 * Copy text to the clipboard and return whether it succeeded.
 * @param {string} text
 */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copySelection(text);
  }
}

/**
 * Copy text in a page without access to the clipboard, such as a report opened from disk.
 * @param {string} text
 */
function copySelection(text) {
  const area = el("textarea", { class: "hidden-text", "aria-hidden": "true", value: text });
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  return isCopied;
}
