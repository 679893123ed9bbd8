import * as announcer from "./announce";
import * as calls from "./calls";
import * as connection from "./connection";
import { on } from "./data/bus";
import { takeLegacy } from "./data/legacy";
import { settings, showTheme } from "./data/settings";
import * as data from "./data/store";
import { store } from "./data/store";
import { byId } from "./dom";
import { resumeLeft, stop } from "./runs";
import * as shortcuts from "./shortcuts";
import * as tools from "./tools";
import * as chat from "./view/chat";
import * as composer from "./view/composer";
import * as header from "./view/header";
import { openParameters } from "./view/parameters";
import { openPreferences } from "./view/preferences";
import * as server from "./view/server";
import * as sidebar from "./view/sidebar";
import * as toolsView from "./view/tools";

/** The address names the conversation, so that a reload and the browser's Back show it again. */
const inAddress = (): string | null => /^#c=(\w+)$/.exec(location.hash)?.[1] ?? null;

function openConversation(id: string | null): void {
  server.show(false);
  document.body.classList.remove("with-sidebar");
  history.pushState(null, "", id === null ? location.pathname + location.search : `#c=${id}`);
  void data.open(id).then(composer.focus);
}

async function start(): Promise<void> {
  showTheme();
  announcer.start();
  header.start(openParameters);
  chat.start();
  composer.start(chat.editLast);
  calls.start();
  toolsView.start(openPreferences);
  sidebar.start(openConversation);
  server.start();
  byId("open-preferences").addEventListener("click", openPreferences);
  shortcuts.start({
    newConversation: () => openConversation(null),
    search: sidebar.focusSearch,
    toggleSidebar: sidebar.toggle,
    parameters: openParameters,
    preferences: openPreferences,
    stop: () => stop(store.current.id),
    focusInput: () => byId("input").focus(),
  });
  on("opened", () => {
    if (data.isStored(store.current) && inAddress() !== store.current.id)
      history.replaceState(null, "", `#c=${store.current.id}`);
  });
  connection.start();
  void tools.start();
  try {
    const left = await data.start();
    const legacy = takeLegacy();
    if (legacy.length) await data.importAll(legacy);
    await data.open(inAddress());
    for (const message of left) void resumeLeft(message);
  } finally {
    document.body.classList.remove("starting");
  }
  composer.focus();
}

window.addEventListener("popstate", () => void data.open(inAddress()));
window.addEventListener("pagehide", data.keep);
// Another tab changed the settings.
window.addEventListener("storage", (event) => {
  if (event.key !== "rocmforge.settings" || !event.newValue) return;
  Object.assign(settings, JSON.parse(event.newValue));
  showTheme();
});

void start();
