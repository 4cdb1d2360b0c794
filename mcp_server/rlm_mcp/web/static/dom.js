// Elements from names, attributes and texts. Text is never parsed as markup.

export const byId = (id) => document.getElementById(id);

/** Make an element. A property such as `onclick` is a listener; `false` and `null` omit an attribute. */
export function h(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Text from a kernel, isolated so that its direction does not affect the text around it. */
export const theirs = (text, name = "bdi", attributes = {}) => h(name, attributes, String(text));

/** Make the children of `list` match `items`, and keep existing ones with their focus, text and state. */
export function keep(list, items, keyOf, make) {
  const known = new Map([...list.children].map((child) => [child.dataset.key, child]));
  const wanted = new Set(items.map((item) => String(keyOf(item))));
  for (const [key, node] of known) if (!wanted.has(key)) node.remove(); // first: what is moved loses its focus
  let place = list.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    let node = known.get(key);
    if (node === undefined) {
      node = make(item);
      node.dataset.key = key;
      known.set(key, node);
    }
    node.refresh?.(item);
    if (node === place) place = place.nextElementSibling;
    else list.insertBefore(node, place);
  }
}

/** Mark a link as current, or not. */
export function markCurrent(link, current) {
  if (current) link.setAttribute("aria-current", "page");
  else link.removeAttribute("aria-current");
}

/** Show or hide. */
export function show(node, shown) {
  node.hidden = !shown;
}

/** Set a text, unless it is the same already: that keeps a selection in it. */
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
