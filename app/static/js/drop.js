// Files that the user drops on the page.

const hasFiles = (event) => event.dataTransfer?.types.includes("Files");

// `onFiles` receives the files.
export function onDrop(onFiles) {
  const mark = (dropping) => document.body.classList.toggle("dropping", dropping);
  document.addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return; // text that is dragged to the text field
    event.preventDefault();
    mark(true);
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) mark(false); // the pointer has left the window
  });
  document.addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    mark(false);
    onFiles(event.dataTransfer.files);
  });
}
