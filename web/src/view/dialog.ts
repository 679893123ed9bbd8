import { button, h, iconButton } from "../dom";

let count = 0;

/** Opens a dialog with a title; it is removed when it closes. */
export function openDialog(
  title: string,
  content: HTMLElement[],
  options: { isWide?: boolean; actions?: HTMLElement[] } = {},
): HTMLDialogElement {
  count += 1;
  const id = `dialog-${count}`;
  const dialog = h("dialog", { class: options.isWide ? "wide" : "", attributes: { "aria-labelledby": id } });
  dialog.append(
    h(
      "div",
      { class: "dialog-head" },
      h("h2", { text: title, attributes: { id } }),
      iconButton("close", "Close", () => dialog.close()),
    ),
    h("div", { class: "dialog-body" }, ...content),
  );
  if (options.actions) dialog.append(h("div", { class: "dialog-actions" }, ...options.actions));
  dialog.addEventListener("close", () => dialog.remove());
  // A click beside the dialog closes it.
  dialog.addEventListener("pointerdown", (event) => {
    if (event.target === dialog) dialog.close();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Asks before something is lost. */
export function confirmed(title: string, text: string, action: string): Promise<boolean> {
  return new Promise((resolve) => {
    let isConfirmed = false;
    const confirm = button(
      action,
      () => {
        isConfirmed = true;
        dialog.close();
      },
      "primary danger",
    );
    const dialog = openDialog(title, [h("p", { text })], {
      actions: [button("Cancel", () => dialog.close()), confirm],
    });
    dialog.addEventListener("close", () => resolve(isConfirmed));
    confirm.focus();
  });
}
