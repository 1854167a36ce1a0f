// Notices that the kernel of a live widget is gone, also if nobody tells the page. A part of the widgets' modules.

const SILENT_MS = 5000; // when nothing has come of what is live for so long, the page asks whether it is there
const GRACE_MS = 1000; // an answer comes before the word that the message was read, and may be handled after it

/** Sends the messages of one page to the kernel. `isLive` says whether something is to be heard; `lose` is called when
 * the kernel is gone. Should it be there after all, its next message tells the truth. */
class Presence {
  constructor(model, isLive, lose) {
    this.model = model;
    this.lose = lose;
    this.heard = { n: 0, at: Date.now() }; // messages of the kernel, and when the newest came
    this.watch = setInterval(() => {
      if (isLive() && Date.now() - this.heard.at > SILENT_MS) this.send({ cmd: "ping" });
    }, SILENT_MS);
    model.on("comm_live_update", lose); // the front end says so when it restarts the kernel itself
  }

  /** Something has come of the kernel. */
  hear() {
    this.heard = { n: this.heard.n + 1, at: Date.now() };
  }

  /** Send a message. A kernel that has read it and has not answered does not know the widget: it was restarted, and
   * nobody told the page, as when another page or a program has asked for it. */
  send(message) {
    const { n } = this.heard;
    const status = ({ content }) => {
      if (content.execution_state === "idle") setTimeout(() => n === this.heard.n && this.lose(), GRACE_MS);
    };
    this.model.send(message, { iopub: { status } });
  }

  close() {
    clearInterval(this.watch);
    this.model.off("comm_live_update", this.lose);
  }
}
