import type { Params } from "../conversation";

export interface Settings {
  theme?: "light" | "dark";
  apiKey?: string;
  model?: string;
  /** Of new conversations. */
  system?: string;
  params?: Params;
  hidesSidebar?: boolean;
  tools?: ToolSettings;
}

/** Which servers of tools the page may use, by their URLs. */
export interface ToolSettings {
  isOn?: boolean;
  off?: string[];
  tokens?: Record<string, string>;
}

const KEY = "rocmforge.settings";

function read(): Settings {
  try {
    return (JSON.parse(localStorage.getItem(KEY) ?? "null") as Settings | null) ?? {};
  } catch {
    return {};
  }
}

export const settings: Settings = read();

/** Changes settings. Returns false if the storage is full. */
export function saveSettings(changed: Settings): boolean {
  Object.assign(settings, changed);
  try {
    localStorage.setItem(KEY, JSON.stringify(settings));
    return true;
  } catch {
    return false;
  }
}

export function showTheme(): void {
  const { theme } = settings;
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}
