// Plots of a page: values where one points, zoom by dragging, series shown and hidden. Without it they are pictures.
// An SVG says in data-plot where its axes lie and what they span; its curves are groups of the class "curve".
(() => {
  const PREFIXES = [[1e-1, 1, ""], [1e-4, 1e3, "m"], [1e-7, 1e6, "µ"], [0, 1e9, "n"]];
  const PREFIXED = ["m", "rad", "m/s", "rad/s", "J", "s"];
  const NEAREST = 8;  // curves whose values are shown
  const DRAG = 4;     // units of the SVG below which a drag is a click

  const digits = (value) => {
    const size = Math.abs(value);
    if (size === 0) return "0";
    if (size < 1e-4 || size >= 1e7) {
      const [mantissa, exponent] = value.toExponential(2).split("e");
      return `${mantissa}e${exponent[0]}${exponent.slice(1).padStart(2, "0")}`;
    }
    if (size >= 100) return Math.round(value).toLocaleString("en-US");
    return value.toFixed(2 - Math.floor(Math.log10(size)));
  };
  const quantity = (value, unit) => {
    if (value === 0 || !PREFIXED.includes(unit)) return `${digits(value)} ${unit}`.trim();
    const [, factor, prefix] = PREFIXES.find(([least]) => Math.abs(value) >= least);
    return `${digits(value * factor)} ${prefix}${unit}`;
  };
  const tick = (value, unit) => {
    const [number, ...rest] = quantity(value, unit).split(" ");
    const short = number.includes(".") && !number.includes("e") ? number.replace(/\.?0+$/, "") : number;
    return [short, ...rest].join(" ").replace("-", "−");
  };
  const ticks = (low, high, log, most) => {
    if (log && high / low > 5) {
      const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
      const steps = last - first > 3 ? [1] : last - first > 1 ? [1, 3] : [1, 2, 5];
      const stride = Math.ceil((last - first) / most);
      const found = [];
      for (let e = first; e <= last; e += stride) steps.forEach((s) => found.push(s * 10 ** e));
      return found.filter((value) => value >= low && value <= high);
    }
    const rough = (high - low) / most, decade = 10 ** Math.floor(Math.log10(rough));
    const step = decade * [1, 2, 5, 10].find((s) => s * decade >= rough);
    const found = [];
    for (let k = Math.ceil(low / step); k * step <= high; k += 1) found.push(Number((k * step).toPrecision(12)));
    return found;
  };
  const points = (path) => [...(path.getAttribute("d") || "").matchAll(/[ML]\s*(\S+)\s+(\S+)/g)]
    .map(([, x, y]) => [Number(x), Number(y)]);
  const shape = (list) => list.map(([x, y], k) => `${k ? "L" : "M"} ${x.toFixed(2)} ${y.toFixed(2)}`).join(" ");
  const at = (list, x, snap) => {  // the ordinate of a curve, between its points or at the nearest one
    let k = list.findIndex((point) => point[0] >= x);
    if (k <= 0) {
      const end = list[k < 0 ? list.length - 1 : 0];
      return end && Math.abs(end[0] - x) < 2 ? end : null;
    }
    const [a, b] = [list[k - 1], list[k]];
    if (snap) return x - a[0] < b[0] - x ? a : b;
    return [x, a[1] + ((b[1] - a[1]) * (x - a[0])) / (b[0] - a[0] || 1)];
  };

  class Plot {
    constructor(svg) {
      this.svg = svg;
      Object.assign(this, JSON.parse(svg.getAttribute("data-plot")));
      [this.x0, this.y0, this.x1, this.y1] = this.box;
      this.view = null;  // [left, right, top, bottom] of what is shown, in units of the SVG as it was drawn
      this.range = null; // abscissae that are shown; null for all
      const child = (group, name) => [...group.children].find((one) => one.tagName.toLowerCase() === name);
      this.curves = [...svg.querySelectorAll(".curve")].map((group) => {
        const path = child(group, "path"), uses = [...group.querySelectorAll("use")];
        const name = this.names[Number(group.getAttribute("data-number"))] || "";
        const list = points(path);
        return { group, path, name, list, d: path.getAttribute("d"), hidden: false, snap: uses.length > 0,
          uses: uses.map((use) => [use, Number(use.getAttribute("x")), Number(use.getAttribute("y"))]) };
      });
      this.spans = [...svg.querySelectorAll(".span")].map((group) => {
        const path = child(group, "path");
        return { path, list: points(path), d: path.getAttribute("d") };
      });
      this.fixed = [...svg.querySelectorAll(".tick"), ...svg.querySelectorAll(".mark")];
      this.keys = [...svg.querySelectorAll(".key")];
      this.figure = svg.parentNode;
      this.listen();
    }

    make(name, attributes, parent) {
      const made = document.createElementNS(this.svg.namespaceURI, name);
      Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
      (parent || this.svg).append(made);
      return made;
    }

    // From units of the SVG as it was drawn to numbers, and back.
    abscissa(x) { return this.x[0] + ((x - this.x0) / (this.x1 - this.x0)) * (this.x[1] - this.x[0]); }
    place(value) { return this.x0 + ((value - this.x[0]) / (this.x[1] - this.x[0])) * (this.x1 - this.x0); }
    ordinate(y) {
      const share = (this.y1 - y) / (this.y1 - this.y0), [low, high] = this.y;
      return this.log ? low * (high / low) ** share : low + share * (high - low);
    }
    height(value) {
      const [low, high] = this.y;
      const share = this.log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
      return this.y1 - share * (this.y1 - this.y0);
    }
    // From what was drawn to where it stands now, and back.
    moved([x, y]) {
      if (!this.view) return [x, y];
      const [left, right, top, bottom] = this.view;
      return [this.x0 + ((x - left) / (right - left)) * (this.x1 - this.x0),
        this.y0 + ((y - top) / (bottom - top)) * (this.y1 - this.y0)];
    }
    drawn(x) {
      if (!this.view) return x;
      return this.view[0] + ((x - this.x0) / (this.x1 - this.x0)) * (this.view[1] - this.view[0]);
    }

    pointed(event) {  // units of the SVG
      const seen = this.svg.getBoundingClientRect();
      const [, , width] = this.svg.getAttribute("viewBox").split(/[\s,]+/).map(Number);
      const scale = seen.width / width;
      return [(event.clientX - seen.left) / scale, (event.clientY - seen.top) / scale, scale];
    }

    listen() {
      this.svg.setAttribute("tabindex", "0");
      this.svg.setAttribute("role", "group");
      const on = (name, call) => this.svg.addEventListener(name, call);
      on("pointermove", (event) => {
        const [x, y] = this.pointed(event);
        if (this.start !== undefined) this.band(x); else this.show(x, y);
      });
      on("pointerdown", (event) => {
        const [x, y] = this.pointed(event);
        if (event.button || x < this.x0 || x > this.x1 || y < this.y0 || y > this.y1) return;
        if (event.target.closest && event.target.closest(".key")) return;
        this.start = x;
        if (this.svg.setPointerCapture && event.pointerId !== undefined) this.svg.setPointerCapture(event.pointerId);
      });
      on("pointerup", (event) => {
        if (this.start === undefined) return;
        const x = Math.min(this.x1, Math.max(this.x0, this.pointed(event)[0]));
        const ends = [this.start, x].sort((a, b) => a - b).map((one) => this.abscissa(this.drawn(one)));
        const far = Math.abs(x - this.start) > DRAG;
        this.start = undefined;
        this.band();
        if (far) this.zoomAll(ends);
      });
      on("pointercancel", () => { this.start = undefined; this.band(); });
      on("pointerleave", () => this.hide());
      on("blur", () => this.hide());
      on("dblclick", () => this.zoomAll(null));
      on("keydown", (event) => this.key(event));
      this.keys.forEach((key) => {
        const name = this.names[Number(key.getAttribute("data-number"))];
        button(key, () => this.toggle(name));
      });
    }

    key(event) {
      if (event.target !== this.svg) return;
      const now = this.cursor === undefined ? (this.x0 + this.x1) / 2 : this.cursor;
      const step = (this.x1 - this.x0) / 50;
      const around = (factor) => {
        const [low, high] = this.range || this.x, middle = this.abscissa(this.drawn(now));
        const ends = [low, high].map((end) => middle + (end - middle) * factor);
        return ends[0] <= this.x[0] && ends[1] >= this.x[1] ? null : ends;
      };
      const moves = {
        ArrowLeft: () => this.show(Math.max(this.x0, now - step)), ArrowRight: () => this.show(Math.min(this.x1, now + step)),
        "+": () => this.zoomAll(around(0.5)), "-": () => this.zoomAll(around(2)),
        Escape: () => { this.zoomAll(null); this.hide(); },
      };
      if (!moves[event.key]) return;
      event.preventDefault();
      moves[event.key]();
    }

    // Plots side by side over the same abscissa zoom together.
    zoomAll(range) {
      const grid = this.svg.closest && this.svg.closest(".grid");
      plots.filter((one) => one === this || (grid && one.svg.closest(".grid") === grid && one.xLabel === this.xLabel))
        .forEach((one) => one.zoom(range));
    }

    zoom(range) {
      this.range = range && [Math.max(range[0], this.x[0]), Math.min(range[1], this.x[1])];
      if (this.range && this.range[0] >= this.range[1]) this.range = null;
      this.draw();
    }

    toggle(name) {
      const curves = this.curves.filter((curve) => curve.name === name);
      const hidden = !curves.every((curve) => curve.hidden);
      curves.forEach((curve) => { curve.hidden = hidden; });
      this.keys.filter((key) => this.names[Number(key.getAttribute("data-number"))] === name)
        .forEach((key) => pressed(key, !hidden));
      this.draw();
    }

    draw() {
      this.hide();
      const seen = this.curves.filter((curve) => !curve.hidden);
      this.view = this.range || seen.length < this.curves.length ? this.fitted(seen) : null;
      this.curves.forEach((curve) => {
        curve.group.style.display = curve.hidden ? "none" : "";
        curve.path.setAttribute("d", this.view ? shape(curve.list.map((one) => this.moved(one))) : curve.d);
        curve.uses.forEach(([use, ...from]) => {
          const [x, y] = this.moved(from);
          use.setAttribute("x", x);
          use.setAttribute("y", y);
        });
      });
      this.spans.forEach(({ path, list, d }) => {
        const wide = (one) => [this.moved(one)[0], one[1]];
        path.setAttribute("d", this.view ? `${shape(list.map(wide))} z` : d);
      });
      this.fixed.forEach((group) => { group.style.display = this.view ? "none" : ""; });
      if (this.layer) this.layer.remove();
      this.layer = null;
      if (this.view) this.axes();
    }

    fitted(curves) {
      const [left, right] = (this.range || this.x).map((end) => this.place(end));
      const heights = curves.flatMap(({ list }) => {
        const inside = list.filter(([x]) => x >= left && x <= right).map((point) => point[1]);
        const ends = [left, right].map((x) => at(list, x, false)).filter((point) => point).map((point) => point[1]);
        return [...inside, ...ends];
      });
      if (!heights.length) return [left, right, this.y0, this.y1];
      const low = Math.min(...heights), high = Math.max(...heights), room = 0.05 * (high - low) || 2;
      return [left, right, low - room, high + room];
    }

    axes() {
      const [left, right, top, bottom] = this.view, log = this.log;
      this.layer = this.make("g", { class: "zoomed" });
      const first = this.curves[0].group;
      first.parentNode.insertBefore(this.layer, first);
      const line = (x0, y0, x1, y1) => this.make("line", { x1: x0, y1: y0, x2: x1, y2: y1 }, this.layer);
      const text = (x, y, anchor, words) => {
        this.make("text", { x, y, "text-anchor": anchor }, this.layer).textContent = words;
      };
      ticks(this.abscissa(left), this.abscissa(right), false, 6).forEach((value) => {
        const x = this.moved([this.place(value), 0])[0];
        line(x, this.y0, x, this.y1);
        text(x, this.y1 + 12, "middle", String(value).replace("-", "−"));
      });
      ticks(this.ordinate(bottom), this.ordinate(top), log, 5).forEach((value) => {
        const y = this.moved([0, this.height(value)])[1];
        line(this.x0, y, this.x1, y);
        text(this.x0 - 5, y + 3, "end", tick(value, this.unit));
      });
    }

    band(x) {
      if (this.rect) this.rect.remove();
      this.rect = null;
      if (x === undefined) return;
      this.hide();
      const end = Math.min(this.x1, Math.max(this.x0, x)), begin = Math.min(this.start, end);
      this.rect = this.make("rect", { class: "band", x: begin, y: this.y0, width: Math.abs(end - this.start),
        height: this.y1 - this.y0 });
    }

    hide() {
      this.cursor = undefined;
      if (this.pointer) this.pointer.remove();
      if (this.tip) this.tip.remove();
      this.pointer = this.tip = null;
    }

    show(x, y) {
      this.hide();
      if (x < this.x0 || x > this.x1) return;
      const where = this.drawn(x);
      const found = this.curves.filter((curve) => !curve.hidden)
        .map((curve) => ({ curve, point: at(curve.list, where, curve.snap) })).filter(({ point }) => point)
        .map((one) => ({ ...one, seen: this.moved(one.point) }));
      if (!found.length) return;
      const far = ({ seen }) => (y === undefined ? 0 : Math.abs(seen[1] - y));
      const near = [...found].sort((a, b) => far(a) - far(b)).slice(0, NEAREST);
      this.cursor = x;
      this.pointer = this.make("g", { class: "pointer" });
      this.make("line", { x1: x, y1: this.y0, x2: x, y2: this.y1 }, this.pointer);
      this.tip = document.createElement("div");
      this.tip.setAttribute("class", "tip");
      this.tip.setAttribute("role", "status");
      const row = (words, colour) => {
        const made = document.createElement("div");
        if (colour) {
          const swatch = document.createElement("i");
          swatch.style.borderColor = colour;
          made.append(swatch);
        }
        const said = document.createElement("span");
        said.textContent = words;
        made.append(said);
        this.tip.append(made);
      };
      row(`${this.xLabel}: ${digits(this.abscissa(found[0].curve.snap ? found[0].point[0] : where))}`);
      found.filter((one) => near.includes(one)).forEach(({ curve, point, seen }) => {
        const colour = curve.path.style.stroke;
        const dot = this.make("circle", { cx: seen[0], cy: seen[1], r: 2.5 }, this.pointer);
        dot.style.fill = colour;
        row(`${curve.name ? `${curve.name}: ` : ""}${quantity(this.ordinate(point[1]), this.unit)}`, colour);
      });
      if (near.length < found.length) row(`and ${found.length - near.length} more`);
      this.figure.append(this.tip);
      const width = Number(this.svg.getAttribute("viewBox").split(/[\s,]+/)[2]);
      this.tip.style[x > width / 2 ? "right" : "left"] = `${(100 * (x > width / 2 ? width - x : x)) / width + 3}%`;
    }
  }

  const pressed = (element, on) => {
    element.setAttribute("aria-pressed", String(on));
    element.style.opacity = on ? "" : "0.35";
  };
  const button = (element, call) => {
    element.setAttribute("role", "button");
    element.setAttribute("tabindex", "0");
    pressed(element, true);
    element.addEventListener("click", call);
    element.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      call();
    });
  };

  [...document.querySelectorAll(".hint")].forEach((hint) => { hint.hidden = false; });
  const plots = [...document.querySelectorAll("svg[data-plot]")].map((svg) => new Plot(svg));
  // A legend of several plots hides a series in all plots of its section.
  [...document.querySelectorAll(".legend li")].forEach((item) => {
    const section = item.closest("section") || document;
    const ours = plots.filter((plot) => section === document || plot.svg.closest("section") === section);
    const name = item.textContent.trim();
    if (!ours.some((plot) => plot.names.includes(name))) return;
    let on = true;
    button(item, () => {
      on = !on;
      pressed(item, on);
      ours.forEach((plot) => { if (plot.curves.some((c) => c.name === name && c.hidden === on)) plot.toggle(name); });
    });
  });
})();
