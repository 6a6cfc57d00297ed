/** Small settings of this browser, kept in its local storage. */

/**
 * @template T
 * @param {string} name
 * @param {T} fallback
 * @returns {T}
 */
export function preference(name, fallback) {
  try {
    const text = localStorage.getItem(`perihelion.${name}`);
    return text === null ? fallback : JSON.parse(text);
  } catch {
    return fallback;
  }
}

/** @param {string} name @param {unknown} value */
export function setPreference(name, value) {
  try {
    if (value === undefined) localStorage.removeItem(`perihelion.${name}`);
    else localStorage.setItem(`perihelion.${name}`, JSON.stringify(value));
  } catch {
    // Without storage the setting lasts as long as the page.
  }
}

/** @typedef {"system" | "light" | "dark"} Theme */

/** @param {Theme} theme */
export function applyTheme(theme) {
  const dark = theme === "dark" || (theme === "system" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}
