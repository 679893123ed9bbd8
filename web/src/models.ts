import { emit } from "./data/bus";
import { saveSettings, settings } from "./data/settings";
import { modelProps, type Props } from "./net/api";
import type { ModelInfo } from "./conversation";

/** The models of the server, and the one that answers. */
class Models {
  all: ModelInfo[] = [];
  props: Props | null = null;
  private propsOf = "";

  get chosen(): string {
    const wanted = this.all.find(({ id }) => id === settings.model);
    return (wanted ?? this.all.find(({ chats }) => chats) ?? this.all[0])?.id ?? "";
  }

  get info(): ModelInfo | undefined {
    return this.all.find(({ id }) => id === this.chosen);
  }

  /** Tokens that a prompt and its answer may have; 0 if that is not known. */
  get context(): number {
    return this.props?.context || this.info?.context || 0;
  }

  set(all: ModelInfo[]): void {
    const before = JSON.stringify(this.all);
    this.all = all;
    if (JSON.stringify(all) !== before) emit("models");
    void this.readProps();
  }

  choose(id: string): void {
    saveSettings({ model: id });
    emit("models");
    void this.readProps();
  }

  private async readProps(): Promise<void> {
    const { info } = this;
    const key = info && info.state !== "unloaded" && info.state !== "loading" ? info.id : "";
    if (key === this.propsOf) return;
    this.propsOf = key;
    const props = key ? await modelProps(key) : null;
    if (this.propsOf !== key) return;
    this.props = props;
    emit("models");
  }
}

export const models = new Models();
