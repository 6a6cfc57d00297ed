/** Builds DOM nodes. Text always becomes text nodes, so nothing that a model wrote is parsed as HTML. */

/**
 * @typedef {Node | string | number | null | undefined | false} Child
 * @typedef {Record<string, any>} Properties
 */

/**
 * An element with properties and children. `on…` properties are listeners, `class` and `aria-…` are attributes.
 *
 * @param {string} name
 * @param {Properties} [properties]
 * @param {...(Child | Child[])} children
 * @returns {any}
 */
export function h(name, { dir, ...properties } = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key in element && !key.includes("-") && key !== "list" && key !== "form") element[key] = value;
    else element.setAttribute(key === "class" ? "class" : key, value === true ? "" : String(value));
  }
  add(element, children);
  // With `auto` set before, browsers look for the direction again after each child.
  if (dir) element.dir = dir;
  return element;
}

/**
 * Appends children, and leaves out those that are nothing.
 *
 * @param {Node} parent
 * @param {(Child | Child[])[]} children
 */
export function add(parent, children) {
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    parent.appendChild(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/**
 * Replaces all children.
 *
 * @param {Element} parent
 * @param {...(Child | Child[])} children
 */
export function fill(parent, ...children) {
  parent.replaceChildren();
  add(parent, children);
}

/** Outlines on a grid of 24 units, drawn with strokes. */
const ICONS = {
  plus: "M12 5v14M5 12h14",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  edit: "M4 20h4L19 9l-4-4L4 16zM13.5 6.5l4 4",
  again: "M20 11a8 8 0 1 0-.6 4M20 4v7h-7",
  forward: "M5 5l7 7-7 7M13 5l7 7-7 7",
  left: "M15 6l-6 6 6 6",
  right: "M9 6l6 6-6 6",
  close: "M6 6l12 12M18 6L6 18",
  menu: "M4 7h16M4 12h16M4 17h16",
  sliders: "M4 8h9M17 8h3M4 16h3M11 16h9M15 5.5v5M9 13.5v5",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  fork: "M7 4v7a4 4 0 0 0 4 4h6M14 12l3 3-3 3M7 4v16",
  quote: "M5 7v10M9 8h10M9 12h10M9 16h6",
  code: "M9 7l-5 5 5 5M15 7l5 5-5 5",
  heat: "M4 20V10M9 20V4M14 20v-7M19 20V8",
  clip: "M19 11l-7.5 7.5a4.5 4.5 0 0 1-6.4-6.4L13 4.3a3 3 0 0 1 4.3 4.3L9.5 16.3a1.5 1.5 0 0 1-2.1-2.1L14 7.6",
  chat: "M4 5h16v11H10l-5 4v-4H4z",
  grid: "M4 4h7v7H4zM13 4h7v7h-7zM4 13h7v7H4zM13 13h7v7h-7z",
  text: "M5 6h14M12 6v13M9 19h6",
  pulse: "M3 12h4l3-8 4 16 3-8h4",
  help: "M9 9a3 3 0 1 1 4.5 2.6c-1 .6-1.5 1.2-1.5 2.4M12 17.5v.5",
  theme: "M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16",
  lock: "M6 11h12v9H6zM8.5 11V8a3.5 3.5 0 0 1 7 0v3",
  unlock: "M6 11h12v9H6zM8.5 11V8a3.5 3.5 0 0 1 6.8-1.2",
  more: "M6 12h.01M12 12h.01M18 12h.01",
  check: "M5 12.5l4.5 4.5L19 7.5",
  equal: "M5 9h14M5 15h14",
  save: "M12 4v11M7 11l5 5 5-5M5 20h14",
  braces: "M9 4H7v6l-2 2 2 2v6h2M15 4h2v6l2 2-2 2v6h-2",
  load: "M12 20V9M7 13l5-5 5 5M5 4h14",
  pin: "M9 4h6l-1 6 3 3H7l3-3zM12 13v7",
  down: "M12 5v14M6 13l6 6 6-6",
};

/**
 * A drawing beside or instead of a word; screen readers skip it.
 *
 * @param {keyof typeof ICONS} name
 */
export function icon(name) {
  let drawn = drawings.get(name);
  if (!drawn) drawings.set(name, (drawn = draw(name)));
  return /** @type {SVGSVGElement} */ (drawn.cloneNode(true));
}

/** @type {Map<string, SVGSVGElement>} */
const drawings = new Map();

/** @param {keyof typeof ICONS} name */
function draw(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", ICONS[name]);
  svg.appendChild(path);
  return svg;
}

/**
 * A button that shows only an icon, with its name for screen readers and as a tooltip.
 *
 * @param {keyof typeof ICONS} name
 * @param {string} label
 * @param {(event: MouseEvent) => void} onclick
 * @param {Properties} [properties]
 */
export function iconButton(name, label, onclick, properties = {}) {
  const { class: extra, ...rest } = properties;
  const attributes = { type: "button", class: `icon-button ${extra ?? ""}`.trim(), title: label, "aria-label": label };
  return h("button", { ...attributes, onclick, ...rest }, icon(name));
}
