// The live widget's front end. It shows the words and figures that view_model.py makes, and sends the user's commands;
// it decides nothing. dashboard.py puts charts.js and store.js before it: one
// module without imports, so it works offline.

const DRAW_MS = 250;
const SPEAK_MS = 10000;
const MOST_LINES = 200; // of the table

const isDark = () => {
  const { jpThemeLight } = document.body.dataset;
  if (jpThemeLight) return jpThemeLight === "false";
  if (/vscode-(light|dark|high-contrast)/.test(document.body.className)) return !document.body.classList.contains("vscode-light");
  return document.documentElement.getAttribute("theme") === "dark";
};

const BODY = `
<div class="mlless-head">
  <span class="mlless-name" data-text="name"></span>
  <span class="mlless-chip" data-ref="chip"><i data-text="icon" aria-hidden="true"></i> <span data-text="word"></span></span>
  <span class="mlless-muted mlless-about" data-text="about"></span>
  <span class="mlless-space"></span>
  <button type="button" data-ref="tableButton" aria-pressed="false">Show as table</button>
  <button type="button" data-ref="stop" class="mlless-stop">Stop</button>
</div>
<div class="mlless-reason" data-text="reason"></div>
<div class="mlless-shortfall" data-text="shortfall"></div>
<div class="mlless-figures">
  <div><div class="mlless-key" data-text="metric_label"></div><div class="mlless-value"><span data-text="metric_text"></span> <small data-text="metric_note"></small></div>
    <div class="mlless-small" data-text="best_text"></div></div>
  <div><div class="mlless-key">Workers</div><div class="mlless-value"><span data-text="workers_text"></span> <small data-text="workers_note"></small></div></div>
  <div class="mlless-wide"><div class="mlless-key" data-text="spent_label"></div><div class="mlless-value"><span data-text="spent_text"></span> <small data-text="spent_note"></small></div>
    <div class="mlless-cap" data-ref="cap" role="img"><i data-ref="committed"></i><i data-ref="spent"></i></div></div>
  <div><div class="mlless-key">Time</div><div class="mlless-value" data-text="time_text"></div></div>
  <div><div class="mlless-key" title="Cost of an hour with the present number of workers">Rate</div><div class="mlless-value"><span data-text="rate_text"></span> <small data-text="rate_note"></small></div></div>
</div>
<div class="mlless-tabs" data-ref="tabs">
  <span id="mlless-against">against</span>
  <span role="group" aria-labelledby="mlless-against" data-ref="axes"></span>
  <span class="mlless-space"></span>
  <button type="button" class="mlless-bare" data-ref="log" aria-pressed="false" title="The loss on a logarithmic axis">log scale</button>
  <button type="button" class="mlless-bare" data-ref="reset" title="Show the whole run again; a double click does the same">reset zoom</button>
</div>
<div class="mlless-charts" data-ref="charts"></div>
<div class="mlless-waiting" data-ref="waiting">The curves begin with the first step.</div>
<div class="mlless-table" data-ref="table" tabindex="0" aria-label="Steps as a table" hidden></div>
<div class="mlless-low">
  <div><h4>Events <em data-ref="eventsNote"></em></h4><div class="mlless-events" data-ref="events" tabindex="0" aria-label="Events, newest first"></div></div>
  <div data-ref="exchange"><h4>A step <em data-ref="stepNote"></em></h4><div class="mlless-times" data-ref="times" role="img"></div>
    <div class="mlless-small mlless-parts" data-ref="parts"></div>
    <h4 class="mlless-next">Exchange</h4><div class="mlless-small" data-ref="exchangeText"></div></div>
</div>
<div class="mlless-controls" data-ref="controls">
  <form data-ref="budgetForm"><label>Budget $ <input data-ref="budget" inputmode="decimal" autocomplete="off" placeholder="no cap"></label><button type="submit" data-ref="apply">Apply</button></form>
  <button type="button" data-ref="remove">Remove a worker</button>
  <span class="mlless-notice" data-ref="notice"></span>
</div>
<div class="mlless-spoken" role="status" aria-live="polite" data-ref="spoken"></div>`;

/** One view: the elements of one output, drawn from the store. */
class View {
  constructor(store, el) {
    this.store = store;
    this.options = { against: "step", zoom: null, log: false };
    this.root = document.createElement("div");
    this.root.className = "mlless";
    this.root.innerHTML = BODY;
    this.refs = Object.fromEntries([...this.root.querySelectorAll("[data-ref]")].map((node) => [node.dataset.ref, node]));
    this.texts = [...this.root.querySelectorAll("[data-text]")];
    this.charts = ["Loss", "Workers", "Dollars"].map((title) => {
      const chart = document.createElement("div");
      chart.innerHTML = `<h4 title="Drag across the chart to zoom"><span>${title}</span><em></em></h4><div class="mlless-plot" role="img"></div>`;
      this.refs.charts.append(chart);
      return { title: chart.querySelector("span"), note: chart.querySelector("em"), plot: chart.querySelector(".mlless-plot") };
    });
    this.wire();
    el.append(this.root);
    this.drawn = 0;
    this.cost = 0;
    this.spoken = { at: 0, word: "" };
    this.update = () => this.schedule();
    store.listeners.add(this.update);
    this.watchers = [new ResizeObserver(this.update), new MutationObserver(this.update)];
    this.watchers[0].observe(this.refs.charts);
    this.watchers[1].observe(document.body, { attributes: true, attributeFilter: ["class", "data-jp-theme-light", "data-jp-theme-name"] });
    this.draw();
    // the canvas is painted; now load plotly's five megabytes
    setTimeout(() => page.want(store.model, this.update), 50);
  }

  wire() {
    const { axes, log, reset, tableButton, stop, remove, budget, budgetForm } = this.refs;
    for (const against of Object.keys(AXES)) {
      const button = document.createElement("button");
      Object.assign(button, { type: "button", className: "mlless-bare", textContent: against });
      button.onclick = () => this.set({ against, zoom: null });
      button.dataset.against = against;
      axes.append(button);
    }
    log.onclick = () => this.set({ log: !this.options.log });
    reset.onclick = () => this.set({ zoom: null });
    tableButton.onclick = () => this.set({ table: !this.options.table });
    stop.onclick = () => this.store.ask("stop", null, "Asking the run to stop");
    remove.onclick = () => this.store.ask("scale_in", 1, "Asking for one worker less");
    budget.oninput = () => (budget.dataset.edited = "yes");
    budgetForm.onsubmit = (event) => {
      event.preventDefault();
      delete budget.dataset.edited;
      this.store.ask("budget", budget.value, "Asking for the new budget");
    };
  }

  set(options) {
    Object.assign(this.options, options);
    this.draw();
  }

  /** Schedule a redraw: at most one per `DRAW_MS`, and drawing takes at most a quarter of the time. */
  schedule() {
    if (this.timer) return;
    const due = this.drawn + Math.max(DRAW_MS, 4 * this.cost) - performance.now();
    this.timer = setTimeout(() => {
      this.timer = null;
      this.draw();
    }, Math.max(0, due));
  }

  draw() {
    const began = performance.now();
    this.root.classList.toggle("dark", isDark());
    this.drawWords();
    const { refs, options, store } = this;
    const isEmpty = !store.rows.n;
    refs.waiting.hidden = !isEmpty;
    refs.charts.hidden = refs.tabs.hidden = isEmpty || Boolean(options.table);
    refs.table.hidden = isEmpty || !options.table;
    if (isEmpty) refs.tableButton.disabled = true;
    else if (options.table) this.drawTable();
    else if (this.root.clientWidth > 0) this.drawCharts();
    this.drawn = performance.now();
    this.cost = this.drawn - began;
  }

  drawWords() {
    const { store, refs, options } = this;
    const status = store.status;
    const cannot = status.cannot || {};
    for (const node of this.texts) setText(node, status[node.dataset.text] ?? "");
    refs.chip.dataset.status = status.status;
    refs.cap.hidden = status.spent_share == null;
    refs.spent.style.width = `${100 * (status.spent_share ?? 0)}%`;
    refs.committed.style.width = `${100 * (status.committed_share ?? 0)}%`;
    refs.cap.setAttribute("aria-label", status.cap_text ?? "");
    refs.cap.parentElement.title = status.cap_text ?? "";
    for (const button of refs.axes.children) button.setAttribute("aria-pressed", String(button.dataset.against === options.against));
    refs.log.setAttribute("aria-pressed", String(options.log));
    refs.reset.hidden = !options.zoom;
    refs.tableButton.disabled = false;
    refs.tableButton.setAttribute("aria-pressed", String(Boolean(options.table)));
    setText(refs.tableButton, options.table ? "Show as charts" : "Show as table");
    const asking = store.open.size > 0;
    const allow = (button, why) => {
      button.disabled = Boolean(why) || asking;
      button.title = why || "";
    };
    allow(refs.stop, cannot.stop);
    allow(refs.remove, cannot.scale_in);
    allow(refs.apply, cannot.budget);
    refs.budget.disabled = Boolean(cannot.budget);
    refs.stop.hidden = refs.controls.hidden = status.is_live === false;
    if (!refs.budget.dataset.edited && document.activeElement !== refs.budget && !asking) refs.budget.value = status.budget_value ?? "";
    const waiting = (status.pending || []).join(" ");
    const idle = [cannot.stop || cannot.scale_in, status.floor_text].filter(Boolean).join(" ");
    const notice = store.notice || (waiting ? { text: waiting, tone: "pending" } : { text: idle, tone: "" });
    setText(refs.notice, notice.text);
    refs.notice.dataset.tone = notice.tone;
    this.drawEvents(status.events || []);
    this.drawExchange(status.exchange);
    this.speak(status);
  }

  drawEvents(events) {
    if (events === this.events) return;
    this.events = events;
    setText(this.refs.eventsNote, events.length > 1 ? "newest first" : "");
    this.refs.events.replaceChildren(
      ...events.flatMap(([time, text]) => [
        Object.assign(document.createElement("time"), { textContent: time }),
        Object.assign(document.createElement("span"), { textContent: text }),
      ]),
    );
    if (!events.length) this.refs.events.replaceChildren(Object.assign(document.createElement("span"), { className: "mlless-muted", textContent: "Nothing yet." }));
  }

  drawExchange(exchange) {
    const { refs } = this;
    refs.exchange.style.visibility = exchange ? "" : "hidden";
    if (!exchange) return;
    const hues = { compute: "var(--blue)", exchange: "var(--orange)", wait: "var(--mut)" };
    const words = { compute: "computing", exchange: "exchanging", wait: "waiting" };
    const meanings = {
      compute: "gradients and the optimiser's update",
      exchange: "publishing the own update, reading and applying those of the others",
      wait: "for slower workers",
    };
    setText(refs.stepNote, `takes ${exchange.step_text}, median of ${exchange.n_steps}`);
    setText(refs.exchangeText, exchange.text);
    const bars = [];
    const parts = [];
    for (const [name, share, text] of exchange.parts) {
      const bar = document.createElement("i");
      bar.style.cssText = `width:${100 * share}%;background:${hues[name]}`;
      bar.title = `${words[name]} ${text}: ${meanings[name]}`;
      bars.push(bar);
      const part = document.createElement("span");
      part.className = "mlless-part";
      part.title = meanings[name];
      part.style.setProperty("--part", hues[name]);
      part.textContent = `${words[name]} ${text}`;
      parts.push(part);
    }
    refs.times.replaceChildren(...bars);
    refs.parts.replaceChildren(...parts);
    refs.times.setAttribute("aria-label", parts.map((part) => part.textContent).join(", "));
  }

  drawCharts() {
    const style = getComputedStyle(this.root);
    const colour = { font: style.fontFamily };
    for (const name of ["bg", "fg", "mut", "line", "blue", "orange", "green", "red", "fill1", "fill2", "halo"]) colour[name] = style.getPropertyValue(`--${name}`).trim();
    const drawn = panels(this.store, this.options);
    const labels = this.labels(drawn);
    drawn.forEach((panel, i) => {
      const { title, note, plot } = this.charts[i];
      setText(title, panel.title);
      drawNotes(note, panel.notes);
      plot.setAttribute("aria-label", labels[i]);
      if (page.lib) drawPlotly(page.lib, plot, panel, colour, this.options.against, (zoom) => this.set({ zoom }));
      else drawCanvas(plot, panel, colour);
    });
    this.root.dataset.rows = this.store.rows.next;
    this.root.dataset.drawer = page.lib ? "plotly" : "canvas";
  }

  /** The charts as text. */
  labels([, workers]) {
    const status = this.store.status;
    return [
      `${status.metric_label} ${status.metric_text} ${status.metric_note}${status.best_text ? `, ${status.best_text}` : ""}, ${status.about}`,
      `${status.workers_text} workers ${status.workers_note}, removed at ${workers.marks.length} steps`,
      `${status.spent_text} spent ${status.spent_note}`,
    ];
  }

  drawTable() {
    const { rows, status } = this.store;
    const shown = tableRows(rows, status.best_step);
    const cell = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });
    const line = (tag, texts) => {
      const tr = document.createElement("tr");
      tr.append(...texts.map((text) => cell(tag, text)));
      return tr;
    };
    const number = (value, digits) => (Number.isNaN(value) ? "" : value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }));
    const lines = [];
    for (const i of shown) {
      const at = (column) => rows.at(i, column);
      const tr = line("td", [
        number(at(STEP), 0), number(at(EPOCH), 2), number(at(TIME), 1), number(at(LOSS), 4), number(at(VALIDATION), 4), number(at(WORKERS), 0), `$${number(at(SPENT), 6)}`, `$${number(at(SERVERS), 6)}`,
      ]);
      tr.classList.toggle("mlless-best", at(STEP) === status.best_step);
      lines.push(tr);
    }
    const table = document.createElement("table");
    const [head, body] = [document.createElement("thead"), document.createElement("tbody")];
    head.append(line("th", ["step", "epoch", "seconds", `training ${status.metric}`, `validation ${status.metric}`, "workers", "spent", "of which servers"]));
    body.append(...lines);
    table.append(cell("caption", `${lines.length.toLocaleString("en")} of ${rows.next.toLocaleString("en")} steps, newest first`), head, body);
    this.refs.table.replaceChildren(table);
  }

  /** Text for screen readers: updated at once when the status changes, else every ten seconds. */
  speak(status) {
    const now = Date.now();
    if (status.word === this.spoken.word && now - this.spoken.at < SPEAK_MS) return;
    this.spoken = { at: now, word: status.word };
    this.refs.spoken.textContent = `${status.word}. ${status.metric_label} ${status.metric_text}, ${status.workers_text} workers, ${status.spent_text} spent.`;
  }

  close() {
    this.store.listeners.delete(this.update);
    page.waiting.delete(this.update);
    clearTimeout(this.timer);
    for (const watcher of this.watchers) watcher.disconnect();
    if (page.lib) for (const { plot } of this.charts) page.lib.purge(plot);
  }
}

/** The legend of a chart, beside its title. */
function drawNotes(node, notes) {
  const key = notes.join();
  if (node.dataset.key === key) return;
  node.dataset.key = key;
  node.replaceChildren(
    ...notes.flatMap(([kind, text]) => [Object.assign(document.createElement("i"), { className: `mlless-${kind}` }), text]),
  );
}

/** The rows of the table, newest first: all rows of a short run; of a long run the newest, the best and evenly spaced evaluated ones. */
function tableRows(rows, bestStep) {
  const all = [...Array(rows.n).keys()].reverse();
  if (all.length <= MOST_LINES) return all;
  const evaluated = all.filter((i) => !Number.isNaN(rows.at(i, VALIDATION)));
  // few evaluations would hide the training steps between them
  const listed = evaluated.length > MOST_LINES / 10 ? evaluated : all;
  const every = Math.ceil(listed.length / MOST_LINES);
  const best = all.filter((i) => rows.at(i, STEP) === bestStep);
  return [...new Set([all[0], ...best, ...listed.filter((_, k) => k % every === 0)])].sort((a, b) => b - a);
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export default () => {
  let store;
  return {
    initialize({ model }) {
      store = new Store(model);
      return () => store.close();
    },
    render({ el }) {
      const view = new View(store, el);
      store.hello();
      return () => view.close();
    },
  };
};
