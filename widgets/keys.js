// Keys pressed in a widget stay in it. A part of the widgets' modules.

/** Keep what is typed or pressed in `root` from the notebook, to which it may be a command, e.g. "d d". */
function keepKeys(root) {
  root.tabIndex = -1; // a click beside the controls gives it the focus, else the notebook would take the next keys
  // Notebook 7 sees keys before the page's elements do. It looks outwards from the element with the focus for one that a
  // shortcut is for, which may be that element itself, and gives up at this mark.
  root.addEventListener("focusin", ({ target }) => (target.dataset.lmSuppressShortcuts = "true"));
  for (const kind of ["keydown", "keypress", "keyup"]) root.addEventListener(kind, (event) => event.stopPropagation());
}

