import { byId, h, iconButton } from "./dom";

// One text per subject, so that the end of one problem does not hide another.
const notices = new Map<string, string>();

/** Shows a problem until it ends (null). */
export function notice(subject: string, text: string | null): void {
  if ((notices.get(subject) ?? null) === text) return;
  if (text === null) notices.delete(subject);
  else notices.set(subject, text);
  const rows = [...notices].map(([key, message]) =>
    h(
      "p",
      {},
      h("span", { text: message }),
      iconButton("close", "Dismiss", () => notice(key, null)),
    ),
  );
  byId("notices").replaceChildren(...rows);
}

let timer = 0;

/** Shows a short message with an optional action for a few seconds. */
export function toast(text: string, action?: { label: string; run: () => void }): void {
  const hide = () => byId("toast").replaceChildren();
  clearTimeout(timer);
  timer = window.setTimeout(hide, 8000);
  byId("toast").replaceChildren(
    h(
      "div",
      {},
      h("span", { text }),
      action &&
        h("button", {
          text: action.label,
          attributes: { type: "button" },
          on: {
            click: () => {
              hide();
              action.run();
            },
          },
        }),
    ),
  );
}
