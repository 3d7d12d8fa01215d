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

/**
 * The type of an element by its name: a tag, with its classes after dots, such as `p.notice.failed`.
 * @template Name
 * @template Types
 * @typedef {Name extends keyof Types ? Types[Name]
 *   : Name extends `${infer Tag extends keyof Types & string}.${string}` ? Types[Tag] : never} Named
 */

const SVG = "http://www.w3.org/2000/svg";

/**
 * Return an element without attributes other than classes.
 * @template {string} Name
 * @param {Name} name without anything that comes from data
 * @param {...Child} children
 */
export function el(name, ...children) {
  return elWith(name, {}, ...children);
}

/**
 * Return an element with attributes.
 * @template {string} Name
 * @param {Name} name without anything that comes from data
 * @param {Props} props
 * @param {...Child} children
 * @returns {Named<Name, HTMLElementTagNameMap>}
 */
export function elWith(name, props, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag);
  build(element, classes, props, children);
  return /** @type {any} */ (element);
}

/**
 * Return an SVG element.
 * @template {string} Name
 * @param {Name} name without anything that comes from data
 * @param {Props} props
 * @param {...Child} children
 * @returns {Named<Name, SVGElementTagNameMap>}
 */
export function svg(name, props, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElementNS(SVG, tag);
  build(element, classes, props, children);
  return /** @type {any} */ (element);
}

/**
 * @param {HTMLElement | SVGElement} element
 * @param {string[]} classes
 * @param {Props} props
 * @param {Child[]} children
 */
function build(element, classes, props, children) {
  for (const each of classes) element.classList.add(each);
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
 * @param {Props | string} props its attributes, or only its classes
 * @param {(event: MouseEvent) => void} onClick
 * @param {...Child} children
 */
export function button(props, onClick, ...children) {
  const own = typeof props === "string" ? { class: props } : props;
  return elWith("button", { type: "button", ...own, on: { click: onClick } }, ...children);
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
  return elWith("span.switch", { role: "group", "aria-label": label }, buttons);
}

/**
 * Return names with their descriptions.
 * @param {[name: Child, description: Child][]} pairs
 */
export function definitions(pairs) {
  return pairs.map(([name, text]) => el("div", el("dt", name), el("dd", text)));
}

/**
 * Return the input for a filter, and its label.
 * @param {string} label
 * @param {string} placeholder
 * @param {Props} props
 */
export function filterInput(label, placeholder, props) {
  const input = elWith("input", {
    type: "search",
    id: "filter",
    placeholder: `filter: ${placeholder} …`,
    autocomplete: "off",
    spellcheck: "false",
    ...props,
  });
  return { input, label: elWith("label.sr", { for: "filter" }, label) };
}

/** Mark the page as ready for those who wait for it, such as tests. */
export function markReady() {
  document.documentElement.dataset.ready = "yes";
}

/**
 * Wait; without a time, until the browser has drawn and handled events.
 * @param {number} [milliseconds]
 */
export function pause(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

/**
 * Return an element that screen readers skip, such as an icon with an adjacent label.
 * @template {string} Name
 * @param {Name} name
 * @param {...Child} children
 */
export function decorative(name, ...children) {
  return elWith(name, { "aria-hidden": "true" }, ...children);
}

/**
 * Return text for screen readers only.
 * @param {...Child} children
 */
export function srOnly(...children) {
  return el("span.sr", ...children);
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
  const area = elWith("textarea.hidden-text", { "aria-hidden": "true", value: text });
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  return isCopied;
}
