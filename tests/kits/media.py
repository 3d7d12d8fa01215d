"""Small images and PDFs: as much of them as is needed to know what they are."""

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\xff\xfe"
JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00"
GIF = b"GIF89a\x01\x00\x01\x00\x80\xff"
WEBP = b"RIFF\x24\x00\x00\x00WEBPVP8 \xff"
PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"
