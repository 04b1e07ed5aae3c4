// The page that takes what was pasted, in Chromium.
import assert from "node:assert/strict";
import { answered } from "./browser.js";
import { onSite } from "./on_site.js";

async function paste(page, text) {
  await page.fill("#text", text);
  await page.click("button.go");
  await answered(page);
  return page.textContent("#answer");
}

onSite("a command, a manifest and a log are read, and lead to a plan", async (page) => {
  await page.goto("/paste.html");
  const compose = "services:\n  llm:\n    image: lmsysorg/sglang:v0.5.2\n    command: python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp 2\n";
  assert.match(await paste(page, compose), /model=qwen3_8b tp_size=2/);
  const log = "server_args=ServerArgs(model_path='meta-llama/Llama-3.1-70B-Instruct', tp_size=1)\ntorch.OutOfMemoryError: CUDA out of memory. GPU 0 has a total capacity of 79.11 GiB";
  assert.match(await paste(page, log), /DIA006.*tp_size=4/s);
  assert.match(await paste(page, log.replace("79.11", "79.10 of an NVIDIA H100 PCIe;")), /Plan it on h100_pcie/);
  const command = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --max-queued-requests 9223372036854775807";
  assert.match(await paste(page, command), /max_queued_requests=9223372036854775807\b/);
  await paste(page, log);
  await page.click("a.go");
  await answered(page);
  assert.equal(await page.inputValue("#model"), "llama_3_1_70b");
});

onSite("hostile text is shown as text", async (page) => {
  await page.goto("/paste.html");
  const hostile = "<img src=x onerror=document.title='taken'><script>document.title='taken'</script>";
  for (const text of [
    hostile,
    `python -m sglang.launch_server --model-path "${hostile}" --chat-template "${hostile}"`,
    `server_args=ServerArgs(model_path="${hostile}")\nValueError: ${hostile}`,
    `model_path: "${hostile}"\ntp_size: 2\n`,
    "a: &a [*a, *a]\nb: !!python/object/apply:os.system [ls]\n",
    "\u0000\u202e\ud800 --model-path",
  ]) {
    assert.notEqual(await paste(page, text), "", text);
  }
  assert.equal(await page.locator("main img, main script:not([src])").count(), 0);
  assert.match(await page.title(), /^Read a launch command/);
});
