/** A button that opens a list of actions, which stays inside the window. */

import { add, h, icon } from "./dom.js";

/** @typedef {{ label: string, icon?: Parameters<typeof icon>[0], run: () => unknown, danger?: boolean }} MenuItem */

/** Room between a menu and its button, and between it and the edge of the window. */
const GAP = 4;
const EDGE = 8;

/**
 * @param {string} label
 * @param {() => MenuItem[]} items Asked for each time it opens.
 * @returns {HTMLButtonElement}
 */
export function menuButton(label, items) {
  const button = h("button", { type: "button", class: "icon-button menu-button", title: label, "aria-label": label, "aria-haspopup": "menu", "aria-expanded": "false" }, icon("more"));
  /** @type {HTMLElement | undefined} */
  let list;
  let wasOpen = false;
  // A press beside an open list closes it, so that a click on the button finds it closed.
  button.addEventListener("pointerdown", () => (wasOpen = Boolean(list?.matches(":popover-open"))));
  button.addEventListener("click", () => {
    if (wasOpen) return void (wasOpen = false);
    const shown = (list ??= menuList(label, items, button));
    button.after(shown);
    shown.showPopover();
    placeAt(shown, button);
    shown.querySelector("button")?.focus();
  });
  return button;
}

/** @param {string} label @param {() => MenuItem[]} items @param {HTMLButtonElement} button */
function menuList(label, items, button) {
  const list = h("div", { class: "menu", popover: "auto", role: "menu", "aria-label": label });
  const hide = () => list.hidePopover();
  list.addEventListener("beforetoggle", (/** @type {ToggleEvent} */ event) => {
    if (event.newState !== "open") return;
    list.replaceChildren();
    add(list, items().map((item) => h("button", { type: "button", role: "menuitem", class: item.danger ? "danger" : "", onclick: () => { hide(); item.run(); } },
      item.icon && icon(item.icon), item.label)));
  });
  list.addEventListener("toggle", (/** @type {ToggleEvent} */ event) => {
    const open = event.newState === "open";
    button.setAttribute("aria-expanded", String(open));
    document[open ? "addEventListener" : "removeEventListener"]("scroll", hide, true);
  });
  list.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const buttons = [...list.querySelectorAll("button")];
    const index = buttons.indexOf(/** @type {any} */ (document.activeElement));
    const next = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (event.key === "Tab") hide();
    // Keys of the page have no meaning here, and Esc closes the menu only.
    event.stopPropagation();
    if (next === undefined) return;
    buttons[(next + buttons.length) % buttons.length].focus();
    event.preventDefault();
  });
  return list;
}

/** Puts a box below or above an element, wherever there is room. @param {HTMLElement} box @param {Element} element */
function placeAt(box, element) {
  const from = element.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = box;
  const fitsBelow = from.bottom + GAP + height <= innerHeight - EDGE;
  const top = fitsBelow || from.top < innerHeight - from.bottom ? from.bottom + GAP : from.top - GAP - height;
  const rightToLeft = getComputedStyle(box).direction === "rtl";
  const start = rightToLeft ? from.right - width : from.left;
  const left = start + width <= innerWidth - EDGE && start >= EDGE ? start : rightToLeft ? from.left : from.right - width;
  const within = (/** @type {number} */ value, /** @type {number} */ most) => `${Math.max(EDGE, Math.min(value, most - EDGE))}px`;
  box.style.setProperty("top", within(top, innerHeight - height));
  box.style.setProperty("left", within(left, innerWidth - width));
}
