import type { Attachment } from "./conversation";
import type { Modalities } from "./net/api";

const MOST_TEXT_BYTES = 2_000_000;
const MOST_IMAGE_BYTES = 4_000_000;
const MOST_AUDIO_BYTES = 20_000_000;
const LONGEST_SIDE = 2048;

/** Reads a file for a message; a text says why it cannot be added. */
export async function attach(file: File, { vision, audio }: Modalities): Promise<Attachment | string> {
  const { name } = file;
  if (file.type.startsWith("image/") && file.type !== "image/svg+xml") {
    if (!vision) return `${name}: this model cannot see images.`;
    return image(file);
  }
  if (file.type.startsWith("audio/")) {
    if (!audio) return `${name}: this model cannot hear.`;
    const isKnown = /^audio\/(?:mpeg|mp3|wave?|x-wav|vnd\.wave)$/.test(file.type);
    if (!isKnown) return `${name}: sounds must be WAV or MP3 files.`;
    if (file.size > MOST_AUDIO_BYTES) return `${name}: sounds may have ${MOST_AUDIO_BYTES / 1e6} MB.`;
    return { kind: "audio", name, data: await dataUrl(file) };
  }
  if (file.type === "application/pdf" || /\.pdf$/i.test(name)) {
    return `${name}: the page does not read PDF files. Copy their text into the message.`;
  }
  if (file.size > MOST_TEXT_BYTES) return `${name}: text files may have ${MOST_TEXT_BYTES / 1e6} MB.`;
  const text = textOf(new Uint8Array(await file.arrayBuffer()));
  return text === null ? `${name}: this is neither text nor an image nor a sound.` : { kind: "text", name, data: text };
}

/** The text of a file; null for other data. */
export function textOf(bytes: Uint8Array): string | null {
  const isWide = (bytes[0] === 0xff && bytes[1] === 0xfe) || (bytes[0] === 0xfe && bytes[1] === 0xff);
  if (!isWide && bytes.subarray(0, 8192).includes(0)) return null;
  try {
    const encoding = isWide ? (bytes[0] === 0xff ? "utf-16le" : "utf-16be") : "utf-8";
    return new TextDecoder(encoding, { fatal: true }).decode(bytes).replace(/\r\n/g, "\n");
  } catch {
    return null;
  }
}

/** An image as a `data:` URL, smaller if it is large. */
async function image(file: File): Promise<Attachment | string> {
  const isKnown = /^image\/(?:png|jpeg|gif|webp)$/.test(file.type);
  if (isKnown && file.size <= MOST_IMAGE_BYTES) return { kind: "image", name: file.name, data: await dataUrl(file) };
  try {
    const bitmap = await createImageBitmap(file);
    const scale = Math.min(1, LONGEST_SIDE / Math.max(bitmap.width, bitmap.height));
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [Math.round(bitmap.width * scale), Math.round(bitmap.height * scale)];
    canvas.getContext("2d")?.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    return { kind: "image", name: file.name, data: canvas.toDataURL("image/jpeg", 0.9) };
  } catch {
    return `${file.name}: the browser cannot read this image.`;
  }
}

function dataUrl(file: Blob): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
