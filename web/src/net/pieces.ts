/** Yields the text of a response in the pieces in which it arrives. */
export async function* pieces(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    yield done ? decoder.decode() : decoder.decode(value, { stream: true });
    if (done) return;
  }
}
