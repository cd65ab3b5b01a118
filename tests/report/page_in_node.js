// A page's elements and pointer, without a browser: what plots.js needs of a document, and no more.
const { readFileSync } = require("fs");
const { tree, script, actions } = JSON.parse(readFileSync(0, "utf8"));

class Element {
  constructor(tag) {
    Object.assign(this, { tagName: tag, attributes: {}, children: [], parentNode: null, text: "", style: {}, listeners: {} });
    this.namespaceURI = "svg";
  }
  static of([tag, attributes, text, children]) {
    const made = new Element(tag);
    Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, value));
    made.text = text;
    made.hidden = "hidden" in attributes;
    made.append(...children.map((child) => Element.of(child)));
    return made;
  }
  getAttribute(name) { return name in this.attributes ? this.attributes[name] : null; }
  setAttribute(name, value) {
    this.attributes[name] = String(value);
    if (name === "style") String(value).split(";").forEach((one) => {
      const [key, set] = one.split(":").map((part) => part.trim());
      if (set) this.style[key] = set;
    });
  }
  append(...children) { children.forEach((child) => this.insertBefore(child, null)); }
  insertBefore(child, before) {
    child.remove();
    child.parentNode = this;
    this.children.splice(before ? this.children.indexOf(before) : this.children.length, 0, child);
  }
  remove() { if (this.parentNode) this.parentNode.children = this.parentNode.children.filter((one) => one !== this); }
  get textContent() { return this.text + this.children.map((child) => child.textContent).join(""); }
  set textContent(value) { this.text = value; this.children = []; }
  get all() { return this.children.flatMap((child) => [child, ...child.all]); }
  matches(selector) {
    const [, tag, name, attribute] = /^([\w-]*)(?:\.([\w-]+))?(?:\[([\w-]+)\])?$/.exec(selector);
    return (!tag || tag === this.tagName) && (!name || (this.attributes.class || "").split(" ").includes(name))
      && (!attribute || attribute in this.attributes);
  }
  querySelectorAll(selector) {
    const parts = selector.split(" ");
    return this.all.filter((one) => one.matches(parts.at(-1)) && (parts.length === 1 || one.parentNode.closest(parts[0])));
  }
  closest(selector) { return this.matches(selector) ? this : this.parentNode && this.parentNode.closest(selector); }
  addEventListener(name, call) { (this.listeners[name] = this.listeners[name] || []).push(call); }
  dispatch(name, event) {
    const whole = { target: this, preventDefault() {}, ...event };
    for (let at = this; at; at = at.parentNode) (at.listeners[name] || []).forEach((call) => call(whole));
  }
  getBoundingClientRect() { return { left: 10, top: 20, width: 2 * 316.8, height: 2 * 180 }; }
}

const root = Element.of(tree);
globalThis.document = {
  querySelectorAll: (selector) => root.querySelectorAll(selector),
  createElement: (tag) => new Element(tag),
  createElementNS: (space, tag) => new Element(tag),
};
new Function(script)();

const state = (svg) => ({
  tip: svg.parentNode.querySelectorAll(".tip").flatMap((tip) => tip.children.map((row) => row.textContent)),
  ticks: svg.querySelectorAll(".zoomed").flatMap((layer) => layer.children.map((one) => one.textContent)).filter((t) => t),
  curves: svg.querySelectorAll(".curve").map((group) => group.children.find((one) => one.tagName === "path").getAttribute("d")),
  shown: svg.querySelectorAll(".curve").map((group) => group.style.display !== "none"),
  fixed: svg.querySelectorAll(".tick").every((one) => one.style.display !== "none"),
  pressed: svg.querySelectorAll(".key").map((key) => key.getAttribute("aria-pressed")),
  hint: root.querySelectorAll(".hint").every((one) => !one.hidden),
});
const plots = root.querySelectorAll("svg[data-plot]");
console.log(JSON.stringify(actions.map(({ plot = 0, key, legend, event, x, y, press }) => {
  const svg = plots[plot];
  const target = legend !== undefined ? root.querySelectorAll(".legend li")[legend]
    : key !== undefined ? svg.querySelectorAll(".key")[key] : svg;
  if (event) target.dispatch(event, { clientX: 10 + 2 * x, clientY: 20 + 2 * y, button: 0, key: press });
  return plots.map(state);
})));
