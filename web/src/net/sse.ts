import { pieces } from "./pieces";

/** Joins the pieces of a stream of server-sent events to their data. */
export class EventParser {
  private rest = "";
  private data: string[] = [];

  /** Takes a piece and returns the data of the events that it completes. */
  push(piece: string): string[] {
    this.rest += piece;
    const lines = this.rest.split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop() ?? "";
    const complete: string[] = [];
    for (const line of lines) {
      if (line === "") {
        if (this.data.length) complete.push(this.data.join("\n"));
        this.data = [];
      } else if (line.startsWith("data:")) {
        this.data.push(line.slice(line[5] === " " ? 6 : 5));
      }
    }
    return complete;
  }
}

/** Yields the data of the events of a response. */
export async function* events(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const parser = new EventParser();
  for await (const piece of pieces(body)) yield* parser.push(piece);
  yield* parser.push("\n\n");
}
