// Sounds in the form that the server takes.

/** Encoders of sound in models work with so many samples a second. */
const RATE = 16_000;

/** A sound of any form that the browser plays, as a WAV file with one channel. */
export async function toWav(bytes: ArrayBuffer): Promise<Uint8Array<ArrayBuffer>> {
  const decoded = await new OfflineAudioContext(1, 1, RATE).decodeAudioData(bytes);
  const channels = Array.from({ length: decoded.numberOfChannels }, (_, index) => decoded.getChannelData(index));
  const samples = new Float32Array(decoded.length);
  for (const channel of channels) {
    for (let i = 0; i < samples.length; i++) samples[i] = (samples[i] ?? 0) + (channel[i] ?? 0) / channels.length;
  }
  return wav(samples);
}

/** A WAV file of samples between -1 and 1, with 16 bits each. */
export function wav(samples: Float32Array): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(44 + 2 * samples.length);
  const view = new DataView(bytes.buffer);
  const text = (at: number, word: string): void => [...word].forEach((c, i) => (bytes[at + i] = c.charCodeAt(0)));
  text(0, "RIFF");
  view.setUint32(4, bytes.length - 8, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  // PCM, one channel, samples and bytes a second, bytes and bits a sample.
  view.setUint16(20, 1, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, RATE, true);
  view.setUint32(28, 2 * RATE, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  text(36, "data");
  view.setUint32(40, 2 * samples.length, true);
  samples.forEach((sample, index) => {
    view.setInt16(44 + 2 * index, Math.round(Math.max(-1, Math.min(1, sample)) * 32_767), true);
  });
  return bytes;
}
