import type { Attachment } from "./conversation";
import type { Modalities } from "./net/api";
import { PdfProblem, readPdf } from "./pdf/read";
import { toWav } from "./sound";

const MOST_TEXT_BYTES = 2_000_000;
const MOST_IMAGE_BYTES = 4_000_000;
const MOST_AUDIO_BYTES = 20_000_000;
const MOST_PDF_BYTES = 50_000_000;
const LONGEST_SIDE = 2048;
/** The share of unknown letters in a PDF file above which its text is of no use. */
const MOST_UNREAD = 0.3;

/** What a file gives to a message, and what a person must know about it. */
export interface Attached {
  attachments: Attachment[];
  note?: string;
}

/** Reads a file for a message. Without attachments, the note says why. */
export async function attach(file: File, modalities: Modalities): Promise<Attached> {
  if (file.type === "application/pdf" || /\.pdf$/i.test(file.name)) return pdf(file, modalities);
  const made = await single(file, modalities);
  return typeof made === "string" ? { attachments: [], note: made } : { attachments: [made] };
}

async function single(file: File, { vision, audio }: Modalities): Promise<Attachment | string> {
  const { name } = file;
  if (file.type.startsWith("image/") && file.type !== "image/svg+xml") {
    if (!vision) return `${name}: this model cannot see images.`;
    return image(file);
  }
  if (file.type.startsWith("audio/")) return audio ? sound(file) : `${name}: this model cannot hear.`;
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

/** A sound as a `data:` URL; the server takes WAV and MP3, and others are decoded here. */
async function sound(file: File): Promise<Attachment | string> {
  const { name } = file;
  if (file.size > MOST_AUDIO_BYTES) return `${name}: sounds may have ${MOST_AUDIO_BYTES / 1e6} MB.`;
  if (/^audio\/(?:mpeg|mp3|wave?|x-wav|vnd\.wave)$/.test(file.type))
    return { kind: "audio", name, data: await dataUrl(file) };
  try {
    const made = new Blob([await toWav(await file.arrayBuffer())], { type: "audio/wav" });
    if (made.size > MOST_AUDIO_BYTES) return `${name}: the sound is too long.`;
    return { kind: "audio", name, data: await dataUrl(made) };
  } catch {
    return `${name}: the browser cannot read this sound.`;
  }
}

/** The text of a PDF file; the pictures of a scanned one for a model that sees. */
async function pdf(file: File, { vision }: Modalities): Promise<Attached> {
  const { name } = file;
  const refused = (reason: string): Attached => ({ attachments: [], note: `${name} ${reason}.` });
  if (file.size > MOST_PDF_BYTES) return refused(`is larger than ${MOST_PDF_BYTES / 1e6} MB`);
  try {
    const { text, unread, pictures } = await readPdf(new Uint8Array(await file.arrayBuffer()));
    const scans = pictures.map((bytes, index) => {
      const part = `${name}, picture ${index + 1}`;
      return image(new File([bytes as Uint8Array<ArrayBuffer>], part, { type: "image/jpeg" }));
    });
    const images = vision ? (await Promise.all(scans)).filter((made) => typeof made !== "string") : [];
    if (text.length > MOST_TEXT_BYTES) return refused(`has more than ${MOST_TEXT_BYTES / 1e6} MB of text`);
    if (unread > MOST_UNREAD) return refused("does not tell which letters its glyphs are, so its text cannot be read");
    const attachments: Attachment[] = [...images, ...(text ? [{ kind: "text" as const, name, data: text }] : [])];
    if (attachments.length) {
      const share = `${Math.ceil(unread * 100)} %`;
      return { attachments, note: unread > 0.01 ? `${name}: ${share} of its letters cannot be read.` : undefined };
    }
    if (!pictures.length) return refused("has no text that this page can read");
    return refused(
      vision ? "has pictures that this browser cannot read" : "has no text but pictures, which this model cannot see",
    );
  } catch (error) {
    if (!(error instanceof PdfProblem)) throw error;
    return refused(error.message);
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
