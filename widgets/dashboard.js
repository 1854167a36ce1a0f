// The live widget's front end. It shows the words and figures that view_model.py makes, and sends the user's commands;
// it decides nothing. dashboard.py puts the other parts before it: one module without imports, so it works offline.

const DRAW_MS = 250;
// a draw that took long by chance, e.g. while the page was loading, does not hold up the next one for longer
const MOST_APART_MS = 1000;
const SPEAK_MS = 10000;

const isDark = () => {
  const { jpThemeLight } = document.body.dataset;
  if (jpThemeLight) return jpThemeLight === "false";
  if (/vscode-(light|dark|high-contrast)/.test(document.body.className)) return !document.body.classList.contains("vscode-light");
  return document.documentElement.getAttribute("theme") === "dark";
};

const BODY = `
<div class="mlless-estimate" data-text="estimate"></div>
<div class="mlless-head">
  <span class="mlless-name" data-text="name"></span>
  <span class="mlless-chip" data-ref="chip"><i data-text="icon" aria-hidden="true"></i> <span data-text="word"></span></span>
  <span class="mlless-muted mlless-about" data-text="about"></span>
  <span class="mlless-space"></span>
  <button type="button" data-ref="tableButton" aria-pressed="false">Table</button>
  <button type="button" data-ref="stop" class="mlless-stop">Stop</button>
</div>
<div class="mlless-progress" data-ref="progress" role="progressbar" aria-label="progress" aria-valuemin="0" aria-valuemax="100"><i data-ref="bar"></i></div>
<div class="mlless-lines"><div data-ref="first"></div><div class="mlless-second" data-ref="second"></div></div>
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
  <span class="mlless-segments" role="group" aria-labelledby="mlless-against" data-ref="axes"></span>
  <button type="button" class="mlless-toggle" data-ref="log" aria-pressed="false" title="The loss on a logarithmic axis">log scale</button>
  <span class="mlless-space"></span>
  <button type="button" class="mlless-bare" data-ref="reset" title="Show the whole run again; a double click does the same">reset<span class="mlless-more"> zoom</span></button>
</div>
<div class="mlless-body" data-ref="body">
  <div class="mlless-charts" data-ref="charts"></div>
  <div class="mlless-waiting" data-ref="waiting">The curves begin with the first step.</div>
  <div class="mlless-table" data-ref="table" tabindex="0" aria-label="Steps as a table" hidden></div>
</div>
<div class="mlless-low">
  <div><h4>Events <em data-ref="eventsNote"></em></h4><div class="mlless-events" data-ref="events" tabindex="0" aria-label="Events, newest first"></div></div>
  <div data-ref="exchange"><h4>Workers <em data-ref="stepNote"></em></h4><div class="mlless-strip" data-ref="strip" role="img"></div>
    <div class="mlless-small mlless-parts" data-ref="parts"></div><div class="mlless-small mlless-notes" data-ref="stripNote"></div>
    <details class="mlless-small"><summary>Exchange and cost by part</summary><div data-ref="exchangeText"></div><div data-text="cost_text"></div><div data-text="left_text"></div></details></div>
</div>
<div class="mlless-controls" data-ref="controls">
  <form data-ref="budgetForm"><label>Budget $ <input data-ref="budget" inputmode="decimal" autocomplete="off" placeholder="no cap"></label><button type="submit" data-ref="apply">Apply</button></form>
  <button type="button" data-ref="tuner">Pause auto-tuner</button>
  <span class="mlless-pair"><button type="button" data-ref="remove">Remove a worker</button><small>cannot be undone</small></span>
  <form data-ref="moreForm"><label>Continue with +$ <input data-ref="more" inputmode="decimal" autocomplete="off"></label><button type="submit" data-ref="resume">Continue</button></form>
  <span class="mlless-notice" data-ref="notice" aria-live="polite"></span>
</div>
<div class="mlless-spoken" role="status" aria-live="polite" data-ref="spoken"></div>`;

/** One view: the elements of one output, drawn from the store. */
class View {
  constructor(store, el) {
    this.store = store;
    this.el = el;
    this.options = { against: "step", zoom: null, log: null };
    this.root = document.createElement("div");
    this.root.className = "mlless";
    this.root.innerHTML = BODY;
    this.refs = Object.fromEntries([...this.root.querySelectorAll("[data-ref]")].map((node) => [node.dataset.ref, node]));
    this.texts = [...this.root.querySelectorAll("[data-text]")];
    this.charts = ["Loss", "Workers", "Dollars"].map((title) => {
      const chart = document.createElement("div");
      chart.innerHTML = `<h4 title="Drag across the chart to zoom"><span>${title}</span><em></em></h4>
        <div class="mlless-plot"><svg role="img"></svg><div class="mlless-cross" hidden></div><div class="mlless-drag" hidden></div><div class="mlless-tip" hidden></div></div>`;
      this.refs.charts.append(chart);
      const [svg, cross, drag, tip] = chart.querySelector(".mlless-plot").children;
      return { title: chart.querySelector("span"), note: chart.querySelector("em"), plot: svg.parentElement, svg, cross, drag, tip };
    });
    this.pointer = new Pointer(this);
    this.budget = new Field(this.refs.budget);
    this.wire();
    el.append(this.root);
    this.drawn = 0;
    this.cost = 0;
    this.spoken = { at: 0, word: "" };
    this.update = (isAnswer) => this.schedule(isAnswer === true);
    store.listeners.add(this.update);
    this.watchers = [new ResizeObserver(this.update), new MutationObserver(this.update)];
    this.watchers[0].observe(this.refs.body);
    this.watchers[1].observe(document.body, { attributes: true, attributeFilter: ["class", "data-jp-theme-light", "data-jp-theme-name"] });
    this.draw();
  }

  wire() {
    const { axes, log, reset, tableButton, stop, remove, tuner, budget, budgetForm, more, moreForm } = this.refs;
    for (const against of Object.keys(AXES)) {
      const button = document.createElement("button");
      Object.assign(button, { type: "button", textContent: against });
      button.onclick = () => this.set({ against });
      button.dataset.against = against;
      axes.append(button);
    }
    log.onclick = () => this.set({ log: !this.isLog });
    reset.onclick = () => this.set({ zoom: null });
    tableButton.onclick = () => this.set({ table: !this.options.table });
    stop.onclick = () => this.store.ask("stop", null, "Asking the run to stop");
    remove.onclick = () => this.store.ask("scale_in", 1, "Asking for one worker less");
    tuner.onclick = () => this.store.ask("tune", this.store.status.tuner === "paused", "Asking the auto-tuner");
    more.oninput = () => (more.dataset.edited = "yes");
    const onEnter = (form, act) => {
      form.onsubmit = (event) => {
        event.preventDefault();
        act();
      };
    };
    onEnter(budgetForm, () => {
      const taken = this.budget.sent(this.store.status.budget_value ?? "");
      this.store.ask("budget", budget.value, "Asking for the new budget", taken);
    });
    onEnter(moreForm, () => this.store.ask("continue", more.value, "Starting a run that goes on from here"));
    keepKeys(this.root);
  }

  set(options) {
    Object.assign(this.options, options);
    this.draw();
  }

  /** Schedule a redraw: at once for an answer, else at most one per `DRAW_MS`, so that drawing takes about a quarter of the time. */
  schedule(isAnswer = false) {
    if (this.timer && !isAnswer) return;
    clearTimeout(this.timer);
    const apart = isAnswer ? 0 : Math.max(DRAW_MS, Math.min(4 * this.cost, MOST_APART_MS));
    const due = this.drawn + apart - performance.now();
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
    refs.charts.hidden = isEmpty || Boolean(options.table);
    refs.tabs.style.visibility = refs.charts.hidden ? "hidden" : "";
    refs.table.hidden = isEmpty || !options.table;
    if (isEmpty) refs.tableButton.disabled = true;
    else if (options.table) refs.table.replaceChildren(tableOf(store));
    else if (this.root.clientWidth > 0) this.drawCharts();
    this.drawn = performance.now();
    this.cost = this.drawn - began;
  }

  drawWords() {
    const { store, refs, options } = this;
    const { status } = store;
    for (const node of this.texts) setText(node, status[node.dataset.text] ?? "");
    refs.chip.dataset.status = status.status;
    const share = status.progress_share;
    refs.progress.classList.toggle("mlless-unknown", share == null && Boolean(status.is_live));
    refs.bar.style.width = `${100 * (share ?? 0)}%`;
    if (share != null) refs.progress.setAttribute("aria-valuenow", String(Math.round(100 * share)));
    setText(refs.first, status.is_live ? status.progress_text : status.reason);
    const second = status.is_live ? status.target_soon : [status.shortfall && `${status.shortfall}.`, status.next_text].filter(Boolean).join(" ");
    setText(refs.second, second || "");
    refs.cap.style.visibility = status.spent_share == null ? "hidden" : "";
    refs.spent.style.width = `${100 * (status.spent_share ?? 0)}%`;
    refs.committed.style.width = `${100 * (status.committed_share ?? 0)}%`;
    refs.cap.setAttribute("aria-label", status.cap_text ?? "");
    refs.cap.parentElement.title = status.cap_text ?? "";
    for (const button of refs.axes.children) button.setAttribute("aria-pressed", String(button.dataset.against === options.against));
    refs.reset.style.visibility = options.zoom ? "" : "hidden";
    refs.tableButton.disabled = false;
    refs.tableButton.setAttribute("aria-pressed", String(Boolean(options.table)));
    setText(refs.tableButton, options.table ? "Charts" : "Table");
    drawEvents(refs, status.events || []);
    drawExchange(refs, status.exchange);
    drawStrip(refs, status.strip || [], status.strip_note || "");
    this.drawControls();
    this.speak(status);
  }

  drawControls() {
    const { store, refs } = this;
    const { status } = store;
    const cannot = status.cannot || {};
    const asking = store.open.size > 0;
    const allow = (button, why, title) => {
      button.disabled = Boolean(why) || asking;
      button.title = why || title || "";
    };
    allow(refs.stop, cannot.stop);
    allow(refs.remove, cannot.scale_in, "Cannot be undone; the auto-tuner pauses");
    allow(refs.apply, cannot.budget);
    allow(refs.tuner, cannot.tune, status.tuner === "paused" ? "It may remove workers again" : "No worker is removed until it is resumed");
    allow(refs.resume, cannot.resume, "A new run with this budget goes on from the last model");
    refs.budget.disabled = Boolean(cannot.budget);
    refs.more.disabled = Boolean(cannot.resume);
    const isOver = status.is_live === false;
    for (const node of [refs.stop, refs.budgetForm, refs.tuner, refs.remove.parentElement]) node.hidden = isOver;
    refs.tuner.hidden ||= status.tuner === "off" || !status.tuner;
    refs.moreForm.hidden = !isOver || Boolean(cannot.resume);
    setText(refs.tuner, status.tuner === "paused" ? "Resume auto-tuner" : "Pause auto-tuner");
    const waiting = (status.pending || []).join(" ");
    this.budget.draw(status.budget_value ?? "", Boolean(waiting));
    if (!refs.more.dataset.edited) refs.more.value = status.more_value ?? "";
    const idle = isOver ? cannot.resume || "" : [cannot.stop || cannot.scale_in, status.floor_text].filter(Boolean).join(" ");
    const refusal = status.refusal ? { text: `Refused: ${status.refusal}`, tone: "bad" } : null;
    const notice = store.notice || (waiting ? { text: waiting, tone: "pending" } : refusal || { text: idle, tone: "" });
    setText(refs.notice, notice.text);
    refs.notice.dataset.tone = notice.tone;
  }

  drawCharts() {
    const { store, refs } = this;
    const drawn = panels(store, this.options);
    const labels = this.labels(drawn);
    this.isLog = drawn[0].log;
    refs.log.setAttribute("aria-pressed", String(this.isLog));
    drawn.forEach((panel, i) => {
      const chart = this.charts[i];
      setText(chart.title, panel.title);
      drawNotes(chart.note, panel.notes);
      chart.svg.setAttribute("aria-label", labels[i]);
      chart.panel = panel;
      chart.scale = drawChart(chart.plot, panel);
    });
    this.pointer.draw();
    this.root.dataset.rows = store.rows.next;
  }

  /** The charts as text. */
  labels([, workers]) {
    const { status } = this.store;
    return [
      `${status.metric_label} ${status.metric_text} ${status.metric_note}${status.best_text ? `, ${status.best_text}` : ""}, ${status.about}`,
      `${count(status.workers_text, "worker")} ${status.workers_note}, removed at ${count(workers.marks.length, "step")}`,
      `${status.spent_text} spent ${status.spent_note}`,
    ];
  }

  /** Text for screen readers: updated at once when the status changes, else every ten seconds. */
  speak(status) {
    const now = Date.now();
    if (status.word === this.spoken.word && now - this.spoken.at < SPEAK_MS) return;
    this.spoken = { at: now, word: status.word };
    this.refs.spoken.textContent = `${status.word}. ${status.metric_label} ${status.metric_text}, ${count(status.workers_text, "worker")}, ${status.spent_text} spent.`;
  }

  close() {
    this.store.listeners.delete(this.update);
    clearTimeout(this.timer);
    for (const watcher of this.watchers) watcher.disconnect();
    this.root.dataset.closed = "yes";
  }
}

/** Puts a view into the static views of the run's end, as long as the widget lives: with hover, zoom and axes. The
 * notebook keeps the static form. */
class Cards {
  constructor(store) {
    this.store = store;
    this.views = new Set();
    this.watcher = new MutationObserver(() => this.look());
    this.watcher.observe(document.body, { childList: true, subtree: true });
    this.look();
  }

  look() {
    for (const view of this.views) {
      if (view.el.isConnected) continue;
      view.close();
      this.views.delete(view);
    }
    const { card } = this.store.status;
    for (const el of card ? [...document.getElementsByClassName(card)] : []) {
      if (el.querySelector(".mlless:not([data-closed])")) continue; // closed: it has left the page and come back
      el.removeAttribute("style");
      el.classList.add("mlless-live");
      el.replaceChildren();
      this.views.add(new View(this.store, el));
    }
  }

  close() {
    this.watcher.disconnect();
    for (const view of this.views) view.close();
  }
}

export default () => {
  let store;
  let cards;
  return {
    initialize({ model }) {
      store = new Store(model);
      cards = new Cards(store);
      store.hello();
      return () => {
        store.close();
        cards.close();
      };
    },
    render({ el }) {
      const view = new View(store, el);
      store.hello();
      return () => view.close();
    },
  };
};
