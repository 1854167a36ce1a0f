// A field for a figure that may change meanwhile. A part of the widget's one module.

/** An input with the present amount, or with what was typed, until that is the amount. */
class Field {
  constructor(input) {
    this.input = input;
    this.typed = null; // once it was accepted, with the amount `before` that
    input.oninput = () => (this.typed = {});
  }

  /** Call the result once the text as it is now was accepted; what is typed in the meantime stays. */
  sent(present) {
    const { typed } = this;
    return () => typed && (typed.before = present);
  }

  /** Draw it; `isPending`: what was accepted has yet to be done, or refused. */
  draw(present, isPending) {
    const { input, typed } = this;
    const text = input.value.trim();
    const isTaken = typed?.before !== undefined && typed.before !== present && !isPending;
    // "1" may be the beginning of "15": not as long as somebody types
    const isLeft = document.activeElement !== input;
    const isSame = !text || (present && Number(text.replace(/^\$/, "")) === Number(present.replaceAll(",", "")));
    if (isTaken || (isLeft && isSame)) this.typed = null;
    if (!this.typed && input.value !== present) input.value = present;
  }
}
