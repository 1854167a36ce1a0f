// The page's copy of a run: rows, status, and commands without an acknowledgement. A part of the widget's one module.

const MOST_ROWS = 20000; // beyond that rows are thinned to half; spikes stay
const ASK_AGAIN_MS = 1500;
// what a command changes is shown at once; rows are drawn a few times a second
const ANSWERS = ["status", "word", "budget", "tuner", "refusal", "workers_text"];

/** The rows of a run as one growing Float32Array; `next` is the number of the run's next row. */
class Rows {
  constructor() {
    this.data = new Float32Array(1024 * WIDTH);
    this.n = 0;
    this.next = 0;
  }

  at(row, column) {
    return this.data[row * WIDTH + column];
  }

  /** Take a snapshot: a row whose first value is the run's number of rows, then the decimated rows. */
  replace(floats) {
    if (floats.length < WIDTH || floats[0] < this.next) return;
    this.next = floats[0];
    this.n = 0;
    this.add(floats.subarray(WIDTH));
  }

  /** Take a batch that begins with the run's row number `first`; returns false if rows before it are missing. */
  append(floats, first) {
    if (first > this.next) return false;
    const fresh = floats.subarray(Math.min((this.next - first) * WIDTH, floats.length));
    this.next += fresh.length / WIDTH;
    this.add(fresh);
    return true;
  }

  add(floats) {
    const needed = this.n * WIDTH + floats.length;
    if (needed > this.data.length) {
      const grown = new Float32Array(Math.max(needed, 2 * this.data.length));
      grown.set(this.data.subarray(0, this.n * WIDTH));
      this.data = grown;
    }
    this.data.set(floats, this.n * WIDTH);
    this.n += floats.length / WIDTH;
    if (this.n > MOST_ROWS) this.thin();
  }

  /** Of every four rows keep those with the lowest and the highest loss, the best evaluation, and those with an event. */
  thin() {
    let kept = 0;
    for (let i = 0; i < this.n; i += 4) {
      const group = [i, i + 1, i + 2, i + 3].filter((row) => row < this.n);
      const byLoss = [...group].sort((a, b) => this.at(a, LOSS) - this.at(b, LOSS));
      const evaluated = group.filter((row) => !Number.isNaN(this.at(row, VALIDATION)));
      const changed = group.filter((row) => row > 0 && this.at(row, WORKERS) !== this.at(row - 1, WORKERS));
      const keep = new Set([byLoss[0], byLoss[byLoss.length - 1], ...changed]);
      if (evaluated.length) keep.add(evaluated.reduce((best, row) => (this.at(row, VALIDATION) < this.at(best, VALIDATION) ? row : best)));
      for (const row of group) {
        if (keep.has(row)) this.data.copyWithin(kept++ * WIDTH, row * WIDTH, (row + 1) * WIDTH);
      }
    }
    this.n = kept;
  }
}

const floatsOf = (view) =>
  view && view.byteLength ? new Float32Array(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength)) : new Float32Array(0);

/** One run's rows, status and pending commands, shared by all views of the widget. */
class Store {
  constructor(model) {
    this.model = model;
    this.rows = new Rows();
    this.status = model.get("status") || {};
    this.notice = null; // {text, tone} of the newest command
    this.open = new Map(); // commands without an acknowledgement: id -> timer
    this.listeners = new Set();
    this.earlier = model.get("earlier") || [];
    this.presence = new Presence(model, () => this.status.is_live, () => this.lose());
    this.rows.replace(floatsOf(model.get("snapshot")));
    model.on("msg:custom", (message, buffers) => this.receive(message, buffers));
    model.on("change:status", () => this.setStatus(model.get("status")));
    model.on("change:snapshot", () => {
      if (!this.rows.n) this.rows.replace(floatsOf(model.get("snapshot")));
      this.changed();
    });
  }

  receive(message, buffers) {
    this.presence.hear();
    if (message.kind === "rows") {
      if (!this.rows.append(floatsOf(buffers[0]), message.first) || this.status.status === "gone") this.hello();
      this.setStatus({ ...this.status, ...message.status });
    } else if (message.kind === "all") {
      this.rows.replace(floatsOf(buffers[0]));
      this.setStatus(message.status);
    } else if (message.kind === "ack") this.acknowledged(message);
  }

  /** The kernel is gone, and the run's feed with it. */
  lose() {
    for (const timer of this.open.values()) clearInterval(timer);
    this.open.clear();
    this.notice = null;
    this.setStatus({ ...this.status, ...this.status.if_restarted });
  }

  setStatus(status) {
    const before = this.status;
    this.status = status;
    this.changed(ANSWERS.some((key) => status[key] !== before[key]) || String(status.pending) !== String(before.pending));
  }

  changed(isAnswer = false) {
    for (const listener of this.listeners) listener(isAnswer);
  }

  hello() {
    this.presence.send({ cmd: "hello" });
  }

  /** Send a command, and repeat it until Python acknowledges it; `taken` is called if it is not refused. */
  ask(cmd, value, doing, taken = () => {}) {
    const id = `${Date.now().toString(36)}-${Math.random().toString(36).slice(2)}`;
    const began = Date.now();
    const send = () => {
      this.presence.send({ cmd, id, value });
      if (Date.now() - began > 4 * ASK_AGAIN_MS) this.say("The kernel has not answered yet; asking again.", "wait");
    };
    this.open.set(id, setInterval(send, ASK_AGAIN_MS));
    this.asked = { id, taken };
    this.say(doing, "wait");
    send();
  }

  acknowledged({ id, ok, text }) {
    if (!this.open.has(id)) return;
    clearInterval(this.open.get(id));
    this.open.delete(id);
    if (ok && this.asked?.id === id) this.asked.taken();
    this.say(text, ok ? "good" : "bad");
  }

  say(text, tone) {
    clearTimeout(this.quiet);
    this.notice = text ? { text, tone } : null;
    // a refusal stays until the next command
    if (tone === "good") this.quiet = setTimeout(() => this.say(""), 12000);
    this.changed(true);
  }

  close() {
    for (const timer of this.open.values()) clearInterval(timer);
    clearTimeout(this.quiet);
    this.presence.close();
  }
}

