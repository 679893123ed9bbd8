/** Where a text stops being JSON. Browsers tell it in different ways, or not at all. */
export function jsonProblem(text: string): string {
  const scanner = new Scanner(text);
  try {
    scanner.value(0);
    scanner.space();
    if (scanner.at < text.length) throw new Problem("the value has ended");
    return "not valid";
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (scanner.at >= text.length) return "not complete";
    const before = text.slice(0, scanner.at).split("\n");
    return `line ${before.length}, column ${(before.at(-1)?.length ?? 0) + 1}: ${error.message}`;
  }
}

class Problem extends Error {}

const DEEPEST = 500;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const WORD = /true|false|null/y;
const TEXT = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[\da-fA-F]{4}))*/y;

class Scanner {
  at = 0;

  constructor(private readonly text: string) {}

  space(): void {
    while (" \t\r\n".includes(this.text[this.at] ?? "x")) this.at += 1;
  }

  value(depth: number): void {
    if (depth > DEEPEST) throw new Problem("too deep");
    this.space();
    const first = this.text[this.at];
    if (first === "{")
      this.members("}", () => {
        if (this.text[this.at] !== '"') throw new Problem("expected a name in quotes");
        this.string();
        this.space();
        this.expect(":");
        this.value(depth + 1);
      });
    else if (first === "[") this.members("]", () => this.value(depth + 1));
    else if (first === '"') this.string();
    else if (!this.take(NUMBER) && !this.take(WORD)) throw new Problem("expected a value");
  }

  private members(end: string, member: () => void): void {
    this.at += 1;
    this.space();
    if (this.text[this.at] === end) {
      this.at += 1;
      return;
    }
    for (;;) {
      this.space();
      member();
      this.space();
      if (this.text[this.at] === end) break;
      this.expect(",", ` or ${end}`);
    }
    this.at += 1;
  }

  private string(): void {
    this.take(TEXT);
    if (this.text[this.at] === "\n") throw new Problem("a line break in a text: write \\n");
    this.expect('"', " or a known escape");
  }

  private expect(character: string, other = ""): void {
    if (this.text[this.at] !== character) throw new Problem(`expected ${character}${other}`);
    this.at += 1;
  }

  private take(pattern: RegExp): boolean {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (found) this.at += found[0].length;
    return found !== null;
  }
}
