// Steps that tasks share.
export const PIXEL = Buffer.from(
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==",
  "base64",
);

export const messages = (page) => page.locator("article");
export const conversations = (page) => page.locator("#conversations li");
export const lastRequest = (it) => it.scripted.requests.at(-1);

export async function menu(page, title, item) {
  await conversations(page).filter({ hasText: title }).hover();
  await page.getByRole("button", { name: `Actions for ${title}` }).click();
  await page.getByRole("menuitem", { name: item }).click();
}

export async function parameters(page, fill) {
  await page.getByRole("button", { name: "Parameters of the conversation" }).click();
  await page.locator("dialog").evaluate((dialog) => {
    for (const details of dialog.querySelectorAll("details")) details.open = true;
  });
  for (const [name, value] of Object.entries(fill)) {
    const field = page.locator(name === "system" ? "#system" : `dialog [name=${name}]`);
    if (value === true) await field.check();
    else await field.fill(value);
  }
  await page.getByRole("button", { name: "Done" }).click();
}
