// Draws one chart as SVG, and the crosshair, the readouts and the zoom that the three charts share. The second part of
// the widget's one module.

const MARGIN = { l: 40, r: 12, t: 14, b: 34 };
const CHARACTER_PX = 6;
const LEAST_DRAG_PX = 6;

const ESCAPED = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
const escaped = (text) => String(text ?? "").replace(/[&<>"]/g, (c) => ESCAPED[c]);

/** The ticks of the x axis and their texts, as many as do not overlap within `room` pixels. */
function xTicks({ span, prefix }, room) {
  for (let about = 7; ; about--) {
    const values = ticks(...span, about);
    const texts = tickTexts(values, prefix);
    const apart = (room * (values[1] - values[0])) / (span[1] - span[0]);
    if (about === 1 || values.length < 2 || Math.max(...texts.map((text) => text.length)) * CHARACTER_PX + 8 <= apart) return [values, texts];
  }
}

/** Where the label of a level, whose line is at `y`, is written; one that is at the right moves if a curve crosses it. */
function labelPlace(panel, { text, isRight, ...level }, y, w, h, curves) {
  const length = CHARACTER_PX * text.length;
  const over = isAbove(panel, { isRight, ...level });
  const begins = isRight ? [[w - 3, "end"], [5, "start"], [w / 2, "middle"]] : [[5, "start"]];
  const places = begins.flatMap(([x, anchor]) => [over, !over].map((up) => ({ x, anchor, shift: up ? -4 : 12 })));
  // far from its line it still tells the value
  places.push({ x: 5, anchor: "start", shift: 10 - y }, { x: w - 3, anchor: "end", shift: 10 - y });
  const isFree = ({ x, anchor, shift }) => {
    const left = x - length * { end: 1, start: 0, middle: 0.5 }[anchor];
    const [top, bottom] = [y + shift - 10, y + shift + 2];
    return top >= 0 && bottom <= h && !curves.some((curve) => crosses(curve, left, left + length, top, bottom));
  };
  return (isRight && places.find(isFree)) || places[0];
}

/** Whether a curve of points, in pixels, passes through a box. */
function crosses(curve, left, right, top, bottom) {
  return curve.some(([x1, y1], i) => {
    const [x0, y0] = curve[Math.max(i - 1, 0)];
    if (x1 < left || x0 > right) return false;
    const at = (x) => y0 + ((y1 - y0) * (Math.min(Math.max(x, x0), x1) - x0)) / (x1 - x0 || 1);
    return Math.max(at(left), at(right)) >= top && Math.min(at(left), at(right)) <= bottom;
  });
}

/** Draw `panel` into `plot`, an element that holds an svg; colours are those of the style sheet. */
function drawChart(plot, panel) {
  const [width, height] = [plot.clientWidth, plot.clientHeight];
  const heights = yTicks(panel);
  const texts = tickTexts(heights, panel.prefix);
  const left = Math.max(MARGIN.l, CHARACTER_PX * Math.max(...texts.map((text) => text.length)) + 10);
  const [w, h] = [Math.max(width - left - MARGIN.r, 1), height - MARGIN.t - MARGIN.b];
  const scale = panel.log ? (v) => Math.log10(Math.max(v, 1e-300)) : (v) => v;
  const [low, high] = panel.range.map(scale);
  const [from, to] = panel.x.span;
  const atX = (x) => (w * (x - from)) / (to - from || 1);
  const atY = (y) => Math.min(Math.max(h - (h * (scale(y) - low)) / (high - low), -4 * h), 5 * h);
  const p = (v) => v.toFixed(1);
  const outer = [];
  const inner = [];
  heights.forEach((value, i) => {
    const y = MARGIN.t + atY(value);
    outer.push(`<line class="g" x1="${left}" x2="${left + w}" y1="${p(y)}" y2="${p(y)}"/><text x="${left - 6}" y="${p(y + 3.5)}" text-anchor="end">${escaped(texts[i])}</text>`);
  });
  const [along, alongTexts] = xTicks(panel.x, w);
  along.forEach((value, i) => {
    const x = left + atX(value);
    const half = (alongTexts[i].length * CHARACTER_PX) / 2;
    outer.push(`<text x="${p(Math.min(x, width - half))}" y="${height - MARGIN.b + 15}" text-anchor="middle">${escaped(alongTexts[i])}</text>`);
  });
  outer.push(`<text x="${p(left + w / 2)}" y="${height - 4}" text-anchor="middle">${escaped(panel.x.title)}</text>`);
  if (panel.band?.length > 1) {
    const there = panel.band.map(([x, , , above]) => `${p(atX(x))},${p(atY(above))}`);
    const back = [...panel.band].reverse().map(([x, , below]) => `${p(atX(x))},${p(atY(below))}`);
    inner.push(`<polygon class="band" points="${[...there, ...back].join(" ")}"/>`);
    inner.push(`<path class="ahead" d="M${panel.band.map(([x, y]) => `${p(atX(x))},${p(atY(y))}`).join("L")}"/>`);
  }
  const curves = panel.lines.map(({ x, y }) => x.map((along, i) => [atX(along), atY(y[i])]));
  for (const { x, y, style } of panel.lines) {
    if (!x.length) continue;
    let d = "";
    for (let i = 0; i < x.length; i++) {
      if (!i) d = `M${p(atX(x[i]))},${p(atY(y[i]))}`;
      else if (style !== "stair") d += `L${p(atX(x[i]))},${p(atY(y[i]))}`;
      else if (y[i] !== y[i - 1] || i === x.length - 1) d += `H${p(atX(x[i]))}V${p(atY(y[i]))}`;
    }
    if (style === "area" || style === "under") inner.push(`<path class="fill-${style}" d="${d}V${p(atY(0))}H${p(atX(x[0]))}Z"/>`);
    inner.push(`<path class="line ${style} ${style === "earlier" ? "mut" : panel.hue}" d="${d}"/>`);
  }
  for (const level of panel.levels) {
    const y = atY(level.y);
    inner.push(`<line class="level ${level.hue}" stroke-dasharray="${level.dash}" x1="0" x2="${p(w)}" y1="${p(y)}" y2="${p(y)}"/>`);
    const { x, anchor, shift } = labelPlace(panel, level, y, w, h, curves);
    inner.push(`<text class="over ${level.hue}" x="${p(x)}" text-anchor="${anchor}" y="${p(y + shift)}">${escaped(level.text)}</text>`);
  }
  if (panel.remark) {
    const where = panel.remark.isRight ? `x="${p(w - 3)}" text-anchor="end"` : 'x="5"';
    inner.push(`<text class="over ${panel.remark.hue}" ${where} y="10">${escaped(panel.remark.text)}</text>`);
  }
  for (const x of panel.marks) outer.push(`<path class="dot ${panel.hue}" d="M${p(left + atX(x) - 4)},2h8l-4,7z"/>`);
  if (panel.dot) inner.push(`<circle class="dot ${panel.hue}" cx="${p(atX(panel.dot.x))}" cy="${p(atY(panel.dot.y))}" r="3"/>`);
  if (panel.best) {
    const [x, y] = [atX(panel.best.x), atY(panel.best.y)];
    inner.push(`<circle class="line best ${panel.hue}" cx="${p(x)}" cy="${p(y)}" r="4.5"/>`);
    const labelX = Math.min(Math.max(x, 2 * CHARACTER_PX + 1), w - 2 * CHARACTER_PX - 1); // near an edge it would be cut
    if (isApart(panel)) inner.push(`<text class="over mut" x="${p(labelX)}" y="${p(y + 17 > h - 2 ? y - 9 : y + 17)}" text-anchor="middle">best</text>`);
  }
  const svg = plot.querySelector("svg");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  // the inner svg clips what lies outside of the axes
  svg.innerHTML = `${outer.join("")}<svg x="${left}" y="${MARGIN.t}" width="${p(w)}" height="${p(h)}">${inner.join("")}</svg>`;
  return { left, width: w, atX: (x) => left + atX(x), valueAt: (px) => from + ((px - left) / w) * (to - from) };
}

/** The crosshair of three charts, their readouts, and the zoom by dragging. */
class Pointer {
  /** `view` has charts with a `plot`, a `scale` and a `panel` each, once drawn, and `set({zoom})`. */
  constructor(view) {
    this.view = view;
    this.row = null;
    for (const chart of view.charts) {
      const { plot } = chart;
      const at = (event) => event.clientX - plot.getBoundingClientRect().left;
      plot.onpointermove = (event) => this.move(chart, at(event));
      plot.onpointerleave = () => !this.from && this.hide();
      plot.onpointerdown = (event) => {
        if (event.button || event.pointerType === "touch" || !chart.scale) return;
        this.from = { chart, x: at(event) };
        plot.setPointerCapture(event.pointerId);
        event.preventDefault(); // no text is selected, and nothing gets the focus
        view.root.focus({ preventScroll: true });
      };
      plot.onpointerup = (event) => this.release(chart, at(event));
      plot.onpointercancel = () => this.release(null, 0);
      plot.ondblclick = () => view.set({ zoom: null });
    }
  }

  move(chart, px) {
    const { rows } = this.view.store;
    if (!chart.scale || !rows.n) return;
    this.row = nearestRow(rows, chart.panel.x.column, chart.scale.valueAt(px));
    if (this.from?.chart === chart) {
      const [a, b] = [Math.min(px, this.from.x), Math.max(px, this.from.x)];
      chart.drag.style.cssText = `left:${a}px;width:${b - a}px`;
      chart.drag.hidden = b - a < LEAST_DRAG_PX;
    }
    this.draw();
  }

  release(chart, px) {
    const from = this.from;
    this.from = null;
    if (!from) return;
    from.chart.drag.hidden = true;
    if (from.chart !== chart || Math.abs(px - from.x) < LEAST_DRAG_PX) return;
    const { rows } = this.view.store;
    const steps = [px, from.x].map((x) => rows.at(nearestRow(rows, chart.panel.x.column, chart.scale.valueAt(x)), STEP)).sort((a, b) => a - b);
    if (steps[1] > steps[0]) this.view.set({ zoom: steps });
  }

  hide() {
    this.row = null;
    this.draw();
  }

  /** Draw it again, e.g. after the charts were. */
  draw() {
    const { rows } = this.view.store;
    for (const { panel, scale, plot, cross, tip } of this.view.charts) {
      const x = this.row === null || !scale || this.row >= rows.n ? NaN : scale.atX(rows.at(this.row, panel.x.column));
      const isIn = x >= scale?.left - 1 && x <= scale?.left + scale?.width + 1;
      cross.hidden = tip.hidden = !isIn;
      if (!isIn) continue;
      cross.style.left = `${x}px`;
      const when = `step ${rows.at(this.row, STEP).toLocaleString("en")} · ${rows.at(this.row, TIME).toFixed(1)} s`;
      setText(tip, [when, ...panel.says(this.row)].join("\n"));
      const isRight = x < plot.clientWidth / 2;
      tip.style.cssText = isRight ? `left:${x + 8}px` : `right:${plot.clientWidth - x + 8}px`;
    }
  }
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
