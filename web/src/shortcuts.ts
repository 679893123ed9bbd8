/** Keys with what they do, as the settings list them. */
export const SHORTCUTS = [
  { keys: "Enter", does: "Send the message" },
  { keys: "Shift+Enter", does: "Begin a new line" },
  { keys: "Escape", does: "Stop the answer" },
  { keys: "↑", does: "Edit your last message, in the empty field" },
  { keys: "Ctrl+Enter", does: "Send an edited message" },
  { keys: "Ctrl+Shift+O", does: "New conversation" },
  { keys: "Ctrl+K", does: "Search conversations" },
  { keys: "Ctrl+B", does: "Show or hide conversations" },
  { keys: "Ctrl+.", does: "Parameters of the conversation" },
  { keys: "Ctrl+,", does: "Settings" },
  { keys: "/", does: "To the message field" },
];

export interface Actions {
  newConversation: () => void;
  search: () => void;
  toggleSidebar: () => void;
  parameters: () => void;
  preferences: () => void;
  stop: () => void;
  focusInput: () => void;
}

export function start(actions: Actions): void {
  document.addEventListener("keydown", (event) => {
    if (document.querySelector("dialog[open]")) return;
    const action = actionOf(event, actions);
    if (!action) return;
    event.preventDefault();
    action();
  });
}

function actionOf(event: KeyboardEvent, actions: Actions): (() => void) | null {
  // Command instead of Control on a Mac.
  const isControl = event.ctrlKey || event.metaKey;
  const key = event.key.toLowerCase();
  if (isControl && event.shiftKey) return key === "o" ? actions.newConversation : null;
  if (isControl) {
    const byKey: Record<string, () => void> = {
      k: actions.search,
      b: actions.toggleSidebar,
      ".": actions.parameters,
      ",": actions.preferences,
    };
    return byKey[key] ?? null;
  }
  if (key === "escape") return actions.stop;
  const isTyping = /^(?:input|textarea|select)$/i.test((event.target as HTMLElement).tagName);
  return key === "/" && !isTyping ? actions.focusInput : null;
}
